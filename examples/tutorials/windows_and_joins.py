"""Counts views per section of the site and minute; a table says which section a page belongs to."""

from datetime import timedelta

from pyspark.sql import functions as F

from millstream import Consumed, Produced, Serdes, StreamsBuilder, TimeWindows

texts = Consumed.with_(Serdes.string(), Serdes.string())

builder = StreamsBuilder()
views = builder.stream("views", texts)  # user -> page
sections = builder.table("sections", texts)  # page -> section

by_page = views.select_key(lambda user, page: page)
by_section = by_page.join(sections, lambda user_page, section: section)

minutes = TimeWindows.of_size_and_grace(timedelta(minutes=1), timedelta(seconds=30))
counts = by_section.group_by(lambda page, section: section).windowed_by(minutes).count()
counts.to_stream(lambda key, count: F.concat_ws(" ", F.date_format(key.window.start, "HH:mm"), key.key)).to(
    "section-views", Produced.with_(Serdes.string(), Serdes.long())
)
topology = builder.build()

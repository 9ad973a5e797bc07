"""Every form that functions have in tables."""

from __future__ import annotations

from pyspark.sql import functions as F

from millstream import Consumed, KTable, Materialized, Serdes, StreamsBuilder, TableJoined

user = Serdes.json("name string, city string, age int")
builder = StreamsBuilder()
users = builder.table("users", Consumed.with_(Serdes.string(), user), Materialized.as_("users"))
accounts = builder.table("accounts", Consumed.with_(Serdes.string(), user))

adults: KTable = users.filter(lambda user: user.age >= 18, Materialized.as_("adults"))
users.filter_not(lambda key, user: user.age >= 18)
users.map_values(lambda user: {"name": user.city, "in": user.city})
users.map_values(lambda key, user: F.upper(user.city), named="names")
users["city"].to_stream().to("cities")
users.select("name", "city")
users.join(accounts, lambda user, account: {"user": user, "account": account})
users.left_join(accounts, lambda key, user, account: user, Materialized.as_("both"))
users.outer_join(accounts, lambda user, account: F.coalesce(user, account))
users.join(accounts, lambda user: user.city, lambda user, account: account.city, TableJoined.as_("priced"))
by_city = users.group_by(lambda key, user: (user.city, user.age))
by_city.count()
by_city.reduce(lambda total, age: total + age, lambda total, age: total - age)
by_city.aggregate(lambda age: F.sum(age), Materialized.as_("ages"))
by_city.aggregate(lambda: 0, lambda city, age, total: total + age, lambda city, age, total: total - age)
users.transform_values(lambda key, user: user["city"])
users.transform_values(lambda key, user, adults: adults.get(key), "adults")

package io.millstream.kernel.serdes;

import java.io.IOException;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;

/** The text of an HTTP answer. An answer with more than so many bytes fails, before it fills the memory. */
final class LimitedText implements HttpResponse.BodySubscriber<String> {
    private final HttpResponse.BodySubscriber<String> text = HttpResponse.BodySubscribers.ofString(StandardCharsets.UTF_8);
    private final int most;
    private Flow.Subscription source;
    private long seen;

    LimitedText(int most) {
        this.most = most;
    }

    @Override
    public CompletionStage<String> getBody() {
        return text.getBody();
    }

    @Override
    public void onSubscribe(Flow.Subscription subscription) {
        source = subscription;
        text.onSubscribe(subscription);
    }

    @Override
    public void onNext(List<ByteBuffer> parts) {
        long before = seen;
        parts.forEach(part -> seen += part.remaining());
        if (seen <= most) {
            text.onNext(parts);
        } else if (before <= most) {
            source.cancel();
            text.onError(new IOException("its answer has more than " + (most >> 20) + " MiB"));
        }
    }

    @Override
    public void onError(Throwable error) {
        text.onError(error); // has no effect if it has failed already
    }

    @Override
    public void onComplete() {
        if (seen <= most) {
            text.onComplete();
        }
    }
}

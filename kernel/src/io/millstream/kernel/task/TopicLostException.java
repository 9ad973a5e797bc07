package io.millstream.kernel.task;

import org.apache.kafka.common.Uuid;

/** A topic of a task is not the one that it was: it was deleted, and perhaps made anew. */
public final class TopicLostException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final String topic;
    private final String before;
    private final String now;

    /**
     * For one topic.
     *
     * @param before the id that it had; null if that is not known
     * @param now the id that it has; null if there is none
     */
    TopicLostException(String topic, Uuid before, Uuid now) {
        super(said(topic, before, now));
        this.topic = topic;
        this.before = before == null ? null : before.toString();
        this.now = now == null ? null : now.toString();
    }

    private static String said(String topic, Uuid before, Uuid now) {
        if (now == null) {
            return "topic '" + topic + "' does not exist" + (before == null ? "" : "; its id was " + before);
        }
        return "topic '" + topic + "' was deleted and made anew: its id was " + before + " and is " + now
                + "; to go on with the new topic, reset the application "
                + "(kafka-streams-application-reset, or kafka-consumer-groups --reset-offsets)";
    }

    /** Its name. */
    public String topic() {
        return topic;
    }

    /** The id that it had; null if that is not known. */
    public String before() {
        return before;
    }

    /** The id that it has; null if it does not exist. */
    public String now() {
        return now;
    }
}

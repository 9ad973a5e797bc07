package io.millstream.kernel.serdes;

/** JSON that is not of its field's type. It knows the field, from the inside out, and nothing of what was there. */
final class JsonMisfit extends RuntimeException {
    private static final long serialVersionUID = 1;
    private static final String OTHER = "this is other JSON";

    private final String wanted;
    private final String found;
    private String field = "";

    JsonMisfit(String wanted) {
        this(wanted, OTHER);
    }

    JsonMisfit(String wanted, String found) {
        super(null, null, false, false);
        this.wanted = wanted;
        this.found = found;
    }

    /** This is in a field, or, for {@code []}, an element. */
    JsonMisfit within(String name) {
        field = field.isEmpty() || field.startsWith("[]") ? name + field : name + "." + field;
        return this;
    }

    /** What a reader takes, and what this is. */
    String said(boolean isObject) {
        String whole = isObject ? "a JSON object" : "JSON of the type " + wanted;
        return (field.isEmpty() ? whole : wanted + " in the field '" + field + "'") + ", and " + found;
    }
}

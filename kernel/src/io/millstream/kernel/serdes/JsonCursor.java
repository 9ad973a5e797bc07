package io.millstream.kernel.serdes;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A place in JSON, and what may be there by its grammar: no comments, no other quotes, no other numbers; UTF-8 alone.
 * Python's half has the same rules (serdes/json_types.py), and a test compares both.
 *
 * <p>Beyond the grammar, {@code NaN}, {@code Infinity} and {@code -Infinity} are numbers, as Python writes them; and an
 * escaped half of a surrogate pair is U+FFFD, because no text can have one.
 */
final class JsonCursor {
    private static final int DEEPEST = 200;
    private static final int NO_CHARACTER = 0xfffd;

    private final byte[] data;
    private int at;
    private int depth;

    JsonCursor(byte[] data, int from) {
        this.data = data;
        at = from;
        if (data.length >= from + 3 && data[from] == (byte) 0xef && data[from + 1] == (byte) 0xbb
                && data[from + 2] == (byte) 0xbf) {
            throw new UnreadableException("JSON in UTF-8 without a byte order mark");
        }
    }

    /** A position to return to. */
    record Mark(int at, int depth) {}

    Mark mark() {
        return new Mark(at, depth);
    }

    void back(Mark mark) {
        at = mark.at;
        depth = mark.depth;
    }

    /** The next byte that is not space. */
    byte peek() {
        while (at < data.length) {
            byte next = data[at];
            if (next != ' ' && next != '\n' && next != '\r' && next != '\t') {
                return next;
            }
            at++;
        }
        throw new UnreadableException("JSON that is whole");
    }

    void end() {
        while (at < data.length) {
            if (" \n\r\t".indexOf(data[at]) < 0) {
                throw malformed();
            }
            at++;
        }
    }

    private UnreadableException malformed() {
        return new UnreadableException("JSON in UTF-8, and byte " + at + " does not belong there");
    }

    /** Whether a null is here; then it is behind it. */
    boolean isNull() {
        if (peek() != 'n') {
            return false;
        }
        literal("null");
        return true;
    }

    boolean isTrue() {
        boolean is = peek() == 't';
        literal(is ? "true" : "false");
        return is;
    }

    private void literal(String word) {
        for (int i = 0; i < word.length(); i++, at++) {
            if (at >= data.length || data[at] != word.charAt(i)) {
                throw malformed();
            }
        }
    }

    /** Into an object or array, whether something is in it. */
    boolean enter(char end) {
        at++;
        if (++depth > DEEPEST) {
            throw new UnreadableException("JSON that is nested at most " + DEEPEST + " deep");
        }
        return !isAt(end);
    }

    /** Past a comma; or, without one, out of the object or array. */
    boolean next(char end) {
        if (peek() == ',') {
            at++;
            return true;
        }
        if (!isAt(end)) {
            throw malformed();
        }
        return false;
    }

    private boolean isAt(char end) {
        if (peek() != end) {
            return false;
        }
        at++;
        depth--;
        return true;
    }

    /** The name of a field; then it is at its value. */
    UTF8String name() {
        UTF8String name = peek() == '"' ? text() : null;
        if (name == null || peek() != ':') {
            throw malformed();
        }
        at++;
        return name;
    }

    /** A string, at whose quote this is. It may be a part of the data. */
    UTF8String text() {
        int start = ++at;
        boolean ascii = true;
        for (; at < data.length; at++) {
            byte next = data[at];
            if (next == '"') {
                UTF8String text = UTF8String.fromBytes(data, start, at - start);
                return checked(text, ascii, start);
            } else if (next == '\\') {
                return escaped(start, ascii);
            } else if (next < 0) {
                ascii = false;
            } else if (next < ' ') {
                throw malformed();
            }
        }
        throw new UnreadableException("JSON that is whole");
    }

    private UTF8String checked(UTF8String text, boolean ascii, int start) {
        if (!ascii && !text.isValid()) {
            throw new UnreadableException("JSON in UTF-8, and the text at byte " + start + " is not in UTF-8");
        }
        at++;
        return text;
    }

    private UTF8String escaped(int start, boolean before) {
        ByteArrayOutputStream out = new ByteArrayOutputStream(2 * (at - start) + 32);
        out.write(data, start, at - start);
        boolean ascii = before;
        for (int from = at; at < data.length; at++) {
            byte next = data[at];
            if (next == '"') {
                out.write(data, from, at - from);
                return checked(UTF8String.fromBytes(out.toByteArray()), ascii, start);
            } else if (next == '\\') {
                out.write(data, from, at - from);
                escape(out);
                from = at + 1;
            } else if (next < 0) {
                ascii = false;
            } else if (next < ' ') {
                throw malformed();
            }
        }
        throw new UnreadableException("JSON that is whole");
    }

    /** One escape, at whose backslash this is; then it is at its last character. */
    private void escape(ByteArrayOutputStream out) {
        int kind = ++at < data.length ? "\"\\/bfnrtu".indexOf(data[at]) : -1;
        if (kind < 0) {
            throw malformed();
        }
        if (kind < 8) {
            out.write("\"\\/\b\f\n\r\t".charAt(kind));
            return;
        }
        int unit = unit();
        if (Character.isHighSurrogate((char) unit) && at + 2 < data.length && data[at + 1] == '\\'
                && data[at + 2] == 'u') {
            int before = at;
            at += 2;
            int low = unit();
            if (Character.isLowSurrogate((char) low)) {
                unit = Character.toCodePoint((char) unit, (char) low);
            } else {
                at = before;
            }
        }
        int character = unit <= 0xffff && Character.isSurrogate((char) unit) ? NO_CHARACTER : unit;
        out.writeBytes(Character.toString(character).getBytes(StandardCharsets.UTF_8));
    }

    private int unit() {
        int unit = 0;
        for (int i = 0; i < 4; i++) {
            int digit = ++at < data.length && data[at] > 0 ? Character.digit(data[at], 16) : -1;
            if (digit < 0) {
                throw malformed();
            }
            unit = unit << 4 | digit;
        }
        return unit;
    }

    /** Whether a number is here: otherwise it is another value, or nothing that JSON has. */
    boolean isNumber() {
        byte next = peek();
        return next == '-' || next >= '0' && next <= '9' || next == 'N' || next == 'I';
    }

    /** A number as it stands there. */
    String number() {
        int start = at;
        if (data[at] == '-') {
            at++;
        }
        if (at < data.length && (data[at] == 'I' || data[at] == 'N' && at == start)) {
            literal(data[at] == 'N' ? "NaN" : "Infinity");
            return string(start);
        }
        if (at < data.length && data[at] == '0') {
            at++;
        } else {
            digits();
        }
        if (at < data.length && data[at] == '.') {
            at++;
            digits();
        }
        if (at < data.length && (data[at] == 'e' || data[at] == 'E')) {
            at++;
            if (at < data.length && (data[at] == '+' || data[at] == '-')) {
                at++;
            }
            digits();
        }
        return string(start);
    }

    private String string(int start) {
        return new String(data, start, at - start, StandardCharsets.ISO_8859_1);
    }

    private void digits() {
        int start = at;
        while (at < data.length && data[at] >= '0' && data[at] <= '9') {
            at++;
        }
        if (at == start) {
            throw malformed();
        }
    }

    /** Past a value, which is written, unless there is no {@code out}, without spaces and else as it stands there. */
    void copy(JsonOut out) {
        byte next = peek();
        switch (next) {
            case '"' -> {
                UTF8String text = text();
                if (out != null) {
                    out.quoted(text);
                }
            }
            case '{', '[' -> {
                char end = next == '{' ? '}' : ']';
                write(out, (char) next);
                for (boolean more = enter(end), first = true; more; more = next(end), first = false) {
                    if (!first) {
                        write(out, ',');
                    }
                    if (next == '{') {
                        UTF8String name = name();
                        if (out != null) {
                            out.quoted(name);
                            out.write(':');
                        }
                    }
                    copy(out);
                }
                write(out, end);
            }
            default -> {
                String word;
                if (isNumber()) {
                    word = number();
                } else if (next == 'n') {
                    literal("null");
                    word = "null";
                } else {
                    word = isTrue() ? "true" : "false";
                }
                if (out != null) {
                    out.ascii(word);
                }
            }
        }
    }

    private static void write(JsonOut out, char character) {
        if (out != null) {
            out.write(character);
        }
    }
}

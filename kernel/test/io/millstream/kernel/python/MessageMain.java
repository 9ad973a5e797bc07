package io.millstream.kernel.python;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

/** Each line is a message in hexadecimal digits: reads it, and prints it as it is written then, or what is wrong. */
public final class MessageMain {
    private MessageMain() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            byte[] data = HexFormat.of().parseHex(line);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            try {
                Message.read(new DataInputStream(new ByteArrayInputStream(data))).write(new DataOutputStream(out));
                System.out.println(HexFormat.of().formatHex(out.toByteArray()));
            } catch (IOException error) {
                System.out.println(error.getClass().getSimpleName() + " " + error.getMessage());
            }
        }
    }
}

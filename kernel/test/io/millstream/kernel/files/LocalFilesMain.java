package io.millstream.kernel.files;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

/** Does with a file system what each line says, and prints what came of it. */
public final class LocalFilesMain {
    public static void main(String[] arguments) throws Exception {
        Configuration conf = new Configuration();
        conf.set("fs.file.impl", arguments[0]);
        conf.set("fs.permissions.umask-mode", arguments[1]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (FileSystem files = FileSystem.getLocal(conf)) {
            follow(lines, files);
        }
    }

    private static void follow(BufferedReader lines, FileSystem files) throws java.io.IOException {
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            Path path = new Path(words[1]);
            try {
                System.out.println(words[0] + " " + done(files, words, path));
            } catch (java.io.IOException error) {
                System.out.println(words[0] + " " + error.getClass().getSimpleName());
            }
        }
    }

    private static Object done(FileSystem files, String[] words, Path path) throws java.io.IOException {
        switch (words[0]) {
            case "write", "write-new":
                try (FSDataOutputStream out = files.create(path, words[0].equals("write"))) {
                    out.write(words[2].getBytes(StandardCharsets.UTF_8));
                }
                return true;
            case "read":
                try (FSDataInputStream in = files.open(path)) {
                    return new String(in.readAllBytes(), StandardCharsets.UTF_8);
                }
            case "mkdirs":
                return files.mkdirs(path);
            case "rename":
                return files.rename(path, new Path(words[2]));
            case "chmod":
                files.setPermission(path, new FsPermission(Short.parseShort(words[2], 8)));
                return true;
            case "list":
                StringBuilder names = new StringBuilder();
                for (FileStatus found : files.listStatus(path)) {
                    names.append(found.getPath().getName()).append(' ');
                }
                return names.toString().trim();
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }
}

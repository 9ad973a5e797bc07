package io.millstream.kernel.task;

/** Prints the budget in MiB for each argument: MiB of the container, a colon, and MiB of the heap. */
public final class MemoryMain {
    private MemoryMain() {}

    public static void main(String[] arguments) {
        for (String argument : arguments) {
            String[] words = argument.split(":");
            long budget = Memory.budget(Long.parseLong(words[0]) << 20, Long.parseLong(words[1]) << 20);
            System.out.println(budget >> 20);
        }
        System.out.println(Memory.bytes("3k") + " " + Memory.bytes("2M") + " " + Memory.bytes("17"));
    }
}

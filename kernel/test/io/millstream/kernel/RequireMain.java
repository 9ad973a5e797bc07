package io.millstream.kernel;

/** Asks for the kernel of a version and a digest; prints what comes of it. */
public final class RequireMain {
    private RequireMain() {}

    public static void main(String[] arguments) {
        try {
            Kernel.require(arguments[0], arguments[1]);
            System.out.println("taken");
        } catch (IllegalStateException refusal) {
            System.out.println(refusal.getMessage());
        }
    }
}

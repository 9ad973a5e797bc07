package io.millstream.kernel.core;

import org.apache.datasketches.hll.HllSketch;
import org.apache.datasketches.hll.TgtHllType;
import org.apache.datasketches.hll.Union;

/** Sketches of the number of different values, as in Spark's {@code hll_*} functions. */
public final class Sketches {
    private Sketches() {}

    /** The sketch of one value, a number or bytes. */
    public static byte[] of(Object value, int logOfSize) {
        HllSketch sketch = new HllSketch(logOfSize, TgtHllType.HLL_8);
        if (value instanceof byte[] bytes) {
            sketch.update(bytes);
        } else {
            sketch.update((Long) value);
        }
        return sketch.toUpdatableByteArray();
    }

    /** A sketch into which others are merged. */
    private static final class Growing implements Encoded {
        private final Union union;

        Growing(byte[] first) {
            HllSketch sketch = HllSketch.heapify(first);
            union = new Union(sketch.getLgConfigK());
            union.update(sketch);
        }

        @Override
        public byte[] bytes() {
            return union.getResult(TgtHllType.HLL_8).toUpdatableByteArray();
        }
    }

    /** The rule of a part with sketches. */
    static final class Rule implements Parts.Rule {
        @Override
        public Object first(Object value) {
            return value instanceof Growing growing ? growing.bytes() : value;
        }

        @Override
        public Object merge(Object one, Object other) {
            Growing growing = one instanceof Growing already ? already : new Growing((byte[]) one);
            growing.union.update(HllSketch.heapify((byte[]) first(other)));
            return growing;
        }
    }
}

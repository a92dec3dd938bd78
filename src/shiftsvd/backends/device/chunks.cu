// Products of sparse rows with a panel on a card, with no atomics: the order of every sum follows from the data alone.
//
// Compiled when it is needed, with these set: DATA (float or double, of the entries), PANEL (of products: DATA, or
// double), WIDTH (columns of a panel, a multiple of 16 bytes), INDEX (int or long long, columns as they are given),
// COLUMN (unsigned short or int, columns as they are kept), THREADS (of a block). A chunk has `height` rows, or fewer
// at the end.
//
// Products are rounded before they are added, not fused: then NumPy can say the same bits
// (tests/support/chunk_twin.py).

typedef long long Long;

// 16 bytes of a row of a panel: what a thread loads at once. LANES threads share a row, GROUPS of them share a line.
constexpr int NUMBERS = 16 / sizeof(PANEL), LANES = WIDTH / NUMBERS, GROUPS = 32 / LANES;
static_assert(LANES * NUMBERS == WIDTH && GROUPS * LANES == 32, "a row of a panel is 16, 32, ... 512 bytes");

__device__ inline float times(float a, float b) {
  return __fmul_rn(a, b);
}
__device__ inline double times(double a, double b) {
  return __dmul_rn(a, b);
}
__device__ inline float plus(float a, float b) {
  return __fadd_rn(a, b);
}
__device__ inline double plus(double a, double b) {
  return __dadd_rn(a, b);
}

struct alignas(16) Lane {
  PANEL v[NUMBERS];

  __device__ static Lane zero() {
    Lane lane;
    for (int i = 0; i < NUMBERS; i++) lane.v[i] = 0;
    return lane;
  }
  // `other` by value: what is read through a reference is not read as 16 bytes at once.
  __device__ void add(PANEL a, Lane other) {
    for (int i = 0; i < NUMBERS; i++) v[i] = plus(v[i], times(a, other.v[i]));
  }
  __device__ void scale(PANEL a) {
    for (int i = 0; i < NUMBERS; i++) v[i] = times(v[i], a);
  }
};

// Where a thread is: a warp takes a line, its lanes the columns of the panel, its groups every GROUPS-th entry.
struct Place {
  int lane, group, warp, warps;

  __device__ static Place here() {
    int t = threadIdx.x;
    return {t % LANES, t % 32 / LANES, t / 32, int(blockDim.x) / 32};
  }
};

// The sums of all groups, added in pairs: a + b and b + a are the same bits, so every group has the same sum.
__device__ inline Lane joined(Lane sum) {
  for (int apart = LANES; apart < 32; apart *= 2)
    for (int i = 0; i < NUMBERS; i++) sum.v[i] = plus(sum.v[i], __shfl_xor_sync(~0u, sum.v[i], apart));
  return sum;
}

// What `value` makes of entries [first, last), times the rows of a panel that they name. Entries are read once, panels
// often: hence __ldcs, which asks caches to keep what is beside.
template <class Index, class Value>
__device__ inline Lane line(const DATA *__restrict__ x, const Index *__restrict__ named, Long first, Long last,
                            const Lane *panel, Place at, Value value) {
  Lane sum = Lane::zero();
#pragma unroll 4
  for (Long k = first + at.group; k < last; k += GROUPS)
    sum.add(value(PANEL(__ldcs(x + k))), panel[Long(__ldcs(named + k)) * LANES + at.lane]);
  return joined(sum);
}

struct Unchanged {
  __device__ PANEL operator()(PANEL a) const {
    return a;
  }
};

// The power of an entry's distance from a centre: 0, 1 or 2.
struct Power {
  PANEL centre;
  Long power;

  __device__ PANEL operator()(PANEL a) const {
    const PANEL apart = plus(a, -centre);
    return power == 0 ? PANEL(1) : power == 1 ? apart : times(apart, apart);
  }
};

// A column of numbers that are all there, `stride` apart, times the first rows of a panel.
__device__ inline Lane full_line(const PANEL *__restrict__ x, Long stride, int rows, const Lane *panel, Place at) {
  Lane sum = Lane::zero();
  for (int i = at.group; i < rows; i += GROUPS) sum.add(x[i * stride], panel[i * LANES + at.lane]);
  return joined(sum);
}

// The rows of a chunk of Y = diag(w) (X V + D B), where B are the last rows of V.
__device__ inline void gather(const DATA *__restrict__ x, const COLUMN *__restrict__ columns,
                              const Long *__restrict__ begins, const Lane *__restrict__ V, const PANEL *__restrict__ D,
                              Long sides, const PANEL *__restrict__ w, Long n, Long lo, int rows, Lane *Y, Place at) {
  for (int i = at.warp; i < rows; i += at.warps) {
    Lane y = line(x, columns, begins[lo + i], begins[lo + i + 1], V, at, Unchanged());
    for (Long s = 0; s < sides; s++) y.add(D[(lo + i) * sides + s], V[(n + s) * LANES + at.lane]);
    if (w) y.scale(w[lo + i]);
    if (at.group == 0) Y[i * LANES + at.lane] = y;
  }
}

// A line of a chunk, added in double precision to what this block has of its chunks before.
__device__ inline void add_line(Lane z, bool first, double *__restrict__ sums, Long j, Place at) {
  double *sum = sums + j * WIDTH + at.lane * NUMBERS;
  if (at.group == 0)
    for (int i = 0; i < NUMBERS; i++) sum[i] = first ? double(z.v[i]) : sum[i] + double(z.v[i]);
}

// The chunk's part of [X D]^T Y.
__device__ inline void scatter(const DATA *__restrict__ x, const unsigned short *__restrict__ rows_of,
                               const unsigned *__restrict__ ends, const PANEL *__restrict__ D, Long sides, Long n,
                               int rows, const Lane *Y, bool first, double *__restrict__ sums, Place at) {
  for (Long j = at.warp; j < n + sides; j += at.warps)
    add_line(j < n ? line(x, rows_of, j ? ends[j - 1] : 0, ends[j], Y, at, Unchanged())
                   : full_line(D + j - n, sides, rows, Y, at),
             first, sums, j, at);
}

__device__ inline void copy(const Lane *from, int rows, Lane *to) {
  for (int i = threadIdx.x; i < rows * LANES; i += blockDim.x) to[i] = from[i];
}

extern __shared__ Lane shared[];

// All products. Y is gathered, or the panel that is `given`; it is `kept`, or multiplied to `sums`, or both: V alone
// gives X V, a given panel X^T W, and neither kept nor given X^T X V. Block b takes the chunks b, b + blocks, ...
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    multiply(const DATA *x, const COLUMN *columns, const Long *begins, const DATA *x_by_columns,
             const unsigned short *rows_of, const unsigned *ends, const Lane *V, const PANEL *D, const PANEL *w,
             const Lane *given, Lane *kept, double *sums, Long height, Long m, Long n, Long sides) {
  const Place at = Place::here();
  const Long chunks = (m + height - 1) / height;
  for (Long chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const Long lo = chunk * height;
    const int rows = int(m - lo < height ? m - lo : height);
    if (given)
      copy(given + lo * LANES, rows, shared);
    else
      gather(x, columns, begins, V, D, sides, w, n, lo, rows, shared, at);
    __syncthreads();
    if (kept) copy(shared, rows, kept + lo * LANES);
    if (sums) {
      const Long begin = begins[lo];
      scatter(x_by_columns + begin, rows_of + begin, ends + chunk * n, D + lo * sides, sides, n, rows, shared,
              chunk == blockIdx.x, sums + blockIdx.x * (n + sides) * WIDTH, at);
    }
    __syncthreads();
  }
}

// Of each column, powers of its entries' distances from a centre, 0 where none is given, times the rows of a panel.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    powers(const Long *begins, const DATA *x_by_columns, const unsigned short *rows_of, const unsigned *ends,
           const Lane *given, const PANEL *centres, double *sums, Long power, Long height, Long m, Long n) {
  const Place at = Place::here();
  const Long chunks = (m + height - 1) / height;
  for (Long chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const Long lo = chunk * height, begin = begins[lo];
    const unsigned *end = ends + chunk * n;
    copy(given + lo * LANES, int(m - lo < height ? m - lo : height), shared);
    __syncthreads();
    for (Long j = at.warp; j < n; j += at.warps)
      add_line(line(x_by_columns + begin, rows_of + begin, j ? end[j - 1] : 0, end[j], shared, at,
                    Power{centres ? centres[j] : PANEL(0), power}),
               chunk == blockIdx.x, sums + blockIdx.x * n * WIDTH, j, at);
    __syncthreads();
  }
}

// The sums of the blocks, in their order.
extern "C" __global__ void add_up(const double *__restrict__ sums, double *__restrict__ total, Long blocks,
                                  Long count) {
  const Long i = Long(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  double sum = sums[i];
  for (Long b = 1; b < blocks; b++) sum += sums[b * count + i];
  total[i] = sum;
}

// The first of the entries [first, last) of a row, whose columns ascend, from column j on.
__device__ inline Long first_from(const INDEX *__restrict__ columns, Long first, Long last, Long j) {
  while (first < last) {
    const Long middle = first + (last - first) / 2;
    if (columns[middle] < j)
      first = middle + 1;
    else
      last = middle;
  }
  return first;
}

// What is done with the entries of some rows in the columns [from, to), which are a warp's own: its lanes share a row,
// whose columns differ, and rows follow each other.
template <class Done>
__device__ inline void row_by_row(const INDEX *__restrict__ columns, const Long *__restrict__ begins, Long lo, Long hi,
                                  Long from, Long to, Done done) {
  const int lane = threadIdx.x % 32;
  for (Long top = lo; top < hi; top += 32) {
    const Long mine = top + lane;
    const Long found = mine < hi ? first_from(columns, begins[mine], begins[mine + 1], from) : 0;
    for (int r = 0; r < 32 && top + r < hi; r++) {
      const Long last = begins[top + r + 1];
      for (Long k = __shfl_sync(~0u, found, r) + lane;; k += 32) {
        const Long j = k < last ? columns[k] : to;
        if (j < to) done(top + r, k, j);
        if (__any_sync(~0u, j >= to)) break;
      }
      __syncwarp();
    }
  }
}

// Counts become the sums of those before them: each thread's stretch of them, after the sum of the stretches before.
__device__ inline void begin_after_each_other(unsigned *counts, Long n, unsigned *stretches) {
  const Long stretch = (n + blockDim.x - 1) / blockDim.x;
  const Long from = threadIdx.x * stretch, to = from + stretch < n ? from + stretch : n;
  unsigned before = 0;
  for (Long j = from; j < to; j++) before += counts[j];
  stretches[threadIdx.x] = before;
  __syncthreads();
  before = 0;
  for (int t = 0; t < int(threadIdx.x); t++) before += stretches[t];
  for (Long j = from; j < to; j++) {
    const unsigned here = counts[j];
    counts[j] = before;
    before += here;
  }
  __syncthreads();
}

// The entries of each chunk by columns, the rows of a column ascending; `ends` says where each column of a chunk ends.
extern "C" __global__ void __launch_bounds__(THREADS)
    order(const DATA *__restrict__ x, const INDEX *__restrict__ given, const Long *__restrict__ begins,
          COLUMN *__restrict__ columns, DATA *__restrict__ x_by_columns, unsigned short *__restrict__ rows_of,
          unsigned *ends, Long height, Long m, Long n) {
  const Long chunks = (m + height - 1) / height, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const Long from = n * warp / warps, to = n * (warp + 1) / warps;
  for (Long chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const Long lo = chunk * height, hi = m - lo < height ? m : lo + height, begin = begins[lo];
    unsigned *end = ends + chunk * n;
    for (Long j = from + threadIdx.x % 32; j < to; j += 32) end[j] = 0;
    __syncwarp();
    row_by_row(given, begins, lo, hi, from, to, [&](Long, Long k, Long j) {
      columns[k] = (COLUMN)j;
      end[j]++;
    });
    __syncthreads();
    begin_after_each_other(end, n, reinterpret_cast<unsigned *>(shared));
    row_by_row(given, begins, lo, hi, from, to, [&](Long i, Long k, Long j) {
      const Long at = begin + end[j]++;  // what begins a column moves on, and ends it at last
      x_by_columns[at] = x[k];
      rows_of[at] = (unsigned short)(i - lo);
    });
  }
}

// dot: operands are permuted to [batch, m, k] and [batch, k, n], multiplied row by row with the
// contiguous n innermost, and the product is permuted to the order of the output letters.
#include <algorithm>
#include <string>

#include "ir/reference/kernel.h"

namespace hyper::ir::reference {
namespace {

struct Letters {
  std::string a, b, out;
  std::string batch, m, n, k;
};

Letters Split(const std::string& spec) {
  Letters l;
  const size_t comma = spec.find(',');
  const size_t arrow = spec.find("->");
  l.a = spec.substr(0, comma);
  l.b = spec.substr(comma + 1, arrow - comma - 1);
  l.out = spec.substr(arrow + 2);
  auto has = [](const std::string& s, char c) { return s.find(c) != std::string::npos; };
  for (char c : l.a) {
    if (!has(l.b, c)) {
      l.m += c;  // free: inference refuses a letter of one input that the output lacks
    } else if (has(l.out, c)) {
      l.batch += c;
    } else {
      l.k += c;
    }
  }
  for (char c : l.b) {
    if (!has(l.a, c)) l.n += c;
  }
  return l;
}

int64_t ExtentOf(char letter, const Letters& l, const Call& call) {
  const size_t in_a = l.a.find(letter);
  if (in_a != std::string::npos) return call.in(0).dims[in_a];
  return call.in(1).dims[l.b.find(letter)];
}

int64_t Extents(const std::string& letters, const Letters& l, const Call& call) {
  int64_t count = 1;
  for (char c : letters) count *= ExtentOf(c, l, call);
  return count;
}

// Visits elements in the order of `order`, giving the offset in a tensor whose dims are `letters`.
template <typename Body>
void Permuted(const std::string& letters, const std::string& order, const Letters& l,
              const Call& call, Body&& body) {
  Dims dims;
  Dims extents;
  for (char c : letters) dims.push_back(ExtentOf(c, l, call));
  const Dims strides = RowMajorStrides(dims);
  Dims step;
  for (char c : order) {
    extents.push_back(ExtentOf(c, l, call));
    step.push_back(strides[letters.find(c)]);
  }
  int64_t n = 0;
  ForEachIndex(extents, [&](const Dims& index) {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset += index[d] * step[d];
    body(n++, offset);
  });
}

template <typename T>
void DotTyped(const Call& call, const Letters& l) {
  using A = Accumulator<T>;
  const int64_t batch = Extents(l.batch, l, call);
  const int64_t m = Extents(l.m, l, call);
  const int64_t n = Extents(l.n, l, call);
  const int64_t k = Extents(l.k, l, call);
  std::vector<A> a(static_cast<size_t>(batch * m * k));
  std::vector<A> b(static_cast<size_t>(batch * k * n));
  std::vector<A> c(static_cast<size_t>(batch * m * n), A{0});
  const T* pa = call.In<T>(0);
  const T* pb = call.In<T>(1);
  Permuted(l.a, l.batch + l.m + l.k, l, call,
           [&](int64_t i, int64_t at) { a[static_cast<size_t>(i)] = static_cast<A>(pa[at]); });
  Permuted(l.b, l.batch + l.k + l.n, l, call,
           [&](int64_t i, int64_t at) { b[static_cast<size_t>(i)] = static_cast<A>(pb[at]); });
  constexpr int64_t kTile = 64;  // of k: a tile of b stays in cache over the rows of a
  for (int64_t s = 0; s < batch; ++s) {
    for (int64_t k0 = 0; k0 < k; k0 += kTile) {
      const int64_t k1 = std::min(k, k0 + kTile);
      for (int64_t i = 0; i < m; ++i) {
        A* row = c.data() + (s * m + i) * n;
        const A* left = a.data() + (s * m + i) * k;
        for (int64_t p = k0; p < k1; ++p) {
          const A x = left[p];
          const A* right = b.data() + (s * k + p) * n;
          for (int64_t j = 0; j < n; ++j) row[j] += x * right[j];
        }
      }
    }
  }
  T* y = call.Out<T>(0);
  Permuted(l.out, l.batch + l.m + l.n, l, call,
           [&](int64_t i, int64_t at) { y[at] = static_cast<T>(c[static_cast<size_t>(i)]); });
}

Status Dot(const Call& call) {
  const Letters letters = Split(call.attributes.String("spec"));
  return DispatchNumeric(call.out(0).dtype, [&](auto zero) {
    DotTyped<decltype(zero)>(call, letters);
    return Status::Ok();
  });
}

constexpr NamedKernel kKernels[] = {{"dot", Dot}};

}  // namespace

std::span<const NamedKernel> ContractionKernels() { return kKernels; }

}  // namespace hyper::ir::reference

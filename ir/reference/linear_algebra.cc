// Determinants from their definition by elimination, cofactors from theirs by minors.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "ir/reference/kernel.h"

namespace hyper::ir::reference {
namespace {

using Matrix = std::vector<double>;  // n x n, row-major

// Eliminates in place with full pivoting; `rows` and `columns` say what step k was swapped with.
// A NaN is taken as the largest element, so that it reaches the determinant.
double Eliminate(Matrix& a, int64_t n, std::vector<int32_t>& rows, std::vector<int32_t>& columns) {
  const auto at = [&](int64_t i, int64_t j) -> double& {
    return a[static_cast<size_t>(i * n + j)];
  };
  double det = 1;
  for (int64_t k = 0; k < n; ++k) {
    int64_t row = k;
    int64_t column = k;
    double largest = 0;
    for (int64_t i = k; i < n; ++i) {
      for (int64_t j = k; j < n; ++j) {
        const double size = std::fabs(at(i, j));
        if (size > largest || std::isnan(size)) {
          largest = size;
          row = i;
          column = j;
        }
      }
    }
    rows[static_cast<size_t>(k)] = static_cast<int32_t>(row);
    columns[static_cast<size_t>(k)] = static_cast<int32_t>(column);
    for (int64_t j = 0; j < n; ++j) std::swap(at(k, j), at(row, j));
    for (int64_t i = 0; i < n; ++i) std::swap(at(i, k), at(i, column));
    det *= ((row != k) != (column != k)) ? -at(k, k) : at(k, k);
    if (largest == 0) continue;
    for (int64_t i = k + 1; i < n; ++i) {
      at(i, k) /= at(k, k);
      for (int64_t j = k + 1; j < n; ++j) at(i, j) -= at(i, k) * at(k, j);
    }
  }
  return det;
}

Status Det(const Call& call) {
  return DispatchFloat(call.in(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t n = call.in(0).dims.back();
    const int64_t count = call.out(0).elements();
    Matrix a(static_cast<size_t>(n * n));
    std::vector<int32_t> rows(static_cast<size_t>(n)), columns(static_cast<size_t>(n));
    for (int64_t m = 0; m < count; ++m) {
      std::copy_n(call.In<T>(0) + m * n * n, n * n, a.begin());
      call.Out<T>(0)[m] = static_cast<T>(Eliminate(a, n, rows, columns));
      std::transform(a.begin(), a.end(), call.Out<T>(1) + m * n * n,
                     [](double v) { return static_cast<T>(v); });
      std::copy(rows.begin(), rows.end(), call.Out<int32_t>(2) + m * 2 * n);
      std::copy(columns.begin(), columns.end(), call.Out<int32_t>(2) + (m * 2 + 1) * n);
    }
    return Status::Ok();
  });
}

// The matrix that det was taken of: the product of the factors with the swaps undone.
Matrix Recompose(const Matrix& factors, int64_t n, const int32_t* pivots) {
  Matrix a(factors.size(), 0.0);
  const auto at = [&](int64_t i, int64_t j) { return static_cast<size_t>(i * n + j); };
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t k = 0; k <= std::min(i, j); ++k) {
        a[at(i, j)] += (k == i ? 1.0 : factors[at(i, k)]) * factors[at(k, j)];
      }
    }
  }
  for (int64_t k = n; k-- > 0;) {
    for (int64_t j = 0; j < n; ++j) std::swap(a[at(k, j)], a[at(pivots[k], j)]);
    for (int64_t i = 0; i < n; ++i) std::swap(a[at(i, k)], a[at(i, pivots[n + k])]);
  }
  return a;
}

Status DetGrad(const Call& call) {
  return DispatchFloat(call.in(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t n = call.in(1).dims.back();
    const int64_t count = call.in(0).elements();
    Matrix factors(static_cast<size_t>(n * n));
    const auto size = static_cast<size_t>(std::max<int64_t>(n - 1, 0));
    std::vector<int32_t> rows(size), columns(size);
    for (int64_t m = 0; m < count; ++m) {
      std::copy_n(call.In<T>(1) + m * n * n, n * n, factors.begin());
      const Matrix a = Recompose(factors, n, call.In<int32_t>(2) + m * 2 * n);
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          Matrix minor;
          for (int64_t r = 0; r < n; ++r) {
            for (int64_t s = 0; s < n; ++s) {
              if (r != i && s != j) minor.push_back(a[static_cast<size_t>(r * n + s)]);
            }
          }
          const double cofactor =
              ((i + j) % 2 == 0 ? 1 : -1) * Eliminate(minor, n - 1, rows, columns);
          call.Out<T>(0)[(m * n + i) * n + j] =
              static_cast<T>(static_cast<double>(call.In<T>(0)[m]) * cofactor);
        }
      }
    }
    return Status::Ok();
  });
}

constexpr NamedKernel kKernels[] = {{"det", Det}, {"det_grad", DetGrad}};

}  // namespace

std::span<const NamedKernel> LinearAlgebraKernels() { return kKernels; }

}  // namespace hyper::ir::reference

// Text of the loops over one square matrix.
#include "codegen/emit/kernel_text.h"

namespace hyper::codegen {

std::string MatrixPrelude() {
  return R"TEXT(
// LU with full pivoting of the n x n matrix x into f; step k swapped row k with row p[0][k] and
// column k with column p[1][k]. Returns the determinant. A NaN counts as the largest element.
template <typename T> static T hy_lu(i64 n, const T* x, i64 xr, i64 xc, T* f, i64 fr, i64 fc,
                                     int32_t* p, i64 pr, i64 pc) {
  for (i64 i = 0; i < n; ++i) for (i64 j = 0; j < n; ++j) f[i * fr + j * fc] = x[i * xr + j * xc];
  T det = 1;
  for (i64 k = 0; k < n; ++k) {
    i64 row = k, column = k;
    T largest = 0;
    for (i64 i = k; i < n; ++i) {
      for (i64 j = k; j < n; ++j) {
        const T size = hy_abs(f[i * fr + j * fc]);
        if (size > largest || size != size) { largest = size; row = i; column = j; }
      }
    }
    p[k * pc] = (int32_t)row;
    p[pr + k * pc] = (int32_t)column;
    if (row != k) {
      det = -det;
      for (i64 j = 0; j < n; ++j) std::swap(f[k * fr + j * fc], f[row * fr + j * fc]);
    }
    if (column != k) {
      det = -det;
      for (i64 i = 0; i < n; ++i) std::swap(f[i * fr + k * fc], f[i * fr + column * fc]);
    }
    const T pivot = f[k * fr + k * fc];
    det *= pivot;
    if (largest == 0) continue;
    for (i64 i = k + 1; i < n; ++i) {
      const T l = f[i * fr + k * fc] /= pivot;
      for (i64 j = k + 1; j < n; ++j) f[i * fr + j * fc] -= l * f[k * fr + j * fc];
    }
  }
  return det;
}
// c = g times the cofactors of the matrix behind f and p. With P A Q = L U the adjugate of A is
// det(P) det(Q) Q adj(U) inv(L) P, and full pivoting puts every zero pivot last: adj(U) follows
// from the inverse of the leading n-1 rows, or is zero with more than one zero pivot.
template <typename T> static void hy_cofactors(i64 n, T g, const T* f, i64 fr, i64 fc,
                                               const int32_t* p, i64 pr, i64 pc, T* c, i64 cr,
                                               i64 cc) {
#define HY_F(i, j) f[(i) * fr + (j) * fc]
#define HY_C(i, j) c[(i) * cr + (j) * cc]
  const i64 m = n - 1;
  T lead = g;
  bool odd = false, defect = false;
  for (i64 k = 0; k < n; ++k) odd ^= (p[k * pc] != k) ^ (p[pr + k * pc] != k);
  for (i64 k = 0; k < m; ++k) { lead *= HY_F(k, k); defect |= HY_F(k, k) == 0; }
  for (i64 i = 0; i < n; ++i) for (i64 j = 0; j < n; ++j) HY_C(i, j) = 0;
  if (n == 0 || defect) return;
  if (odd) lead = -lead;
  for (i64 j = 0; j < m; ++j) {
    HY_C(j, j) = T(1) / HY_F(j, j);
    for (i64 i = j; i-- > 0;) {
      T sum = 0;
      for (i64 k = i + 1; k <= j; ++k) sum += HY_F(i, k) * HY_C(k, j);
      HY_C(i, j) = -sum / HY_F(i, i);
    }
  }
  for (i64 i = 0; i < m; ++i) {
    T sum = 0;
    for (i64 k = i; k < m; ++k) sum += HY_C(i, k) * HY_F(k, m);
    HY_C(i, m) = -lead * sum;
  }
  HY_C(m, m) = lead;
  const T scale = lead * HY_F(m, m);
  for (i64 i = 0; i < m; ++i) for (i64 j = i; j < m; ++j) HY_C(i, j) *= scale;
  for (i64 j = m; j-- > 0;) {
    for (i64 i = 0; i < n; ++i) {
      T sum = HY_C(i, j);
      for (i64 k = j + 1; k < n; ++k) sum -= HY_C(i, k) * HY_F(k, j);
      HY_C(i, j) = sum;
    }
  }
  for (i64 k = n; k-- > 0;) {
    const i64 row = p[k * pc], column = p[pr + k * pc];
    if (column != k) for (i64 j = 0; j < n; ++j) std::swap(HY_C(k, j), HY_C(column, j));
    if (row != k) for (i64 i = 0; i < n; ++i) std::swap(HY_C(i, k), HY_C(i, row));
  }
  for (i64 i = 0; i < n; ++i) for (i64 j = 0; j < i; ++j) std::swap(HY_C(i, j), HY_C(j, i));
#undef HY_F
#undef HY_C
}
)TEXT";
}

}  // namespace hyper::codegen

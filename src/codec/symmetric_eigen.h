#pragma once
// Eigenvalues and eigenvectors of a symmetric matrix: Householder reduction to three diagonals,
// then implicit QL steps (Golub and Van Loan, Matrix Computations, 8.3). float64 throughout.

#include <cstddef>
#include <vector>

namespace kvikk {

struct SymmetricEigen {
  std::vector<double> values;   // [n], descending
  std::vector<double> vectors;  // [n, n]: row i belongs to values[i], length 1
};

// matrix: [n, n], symmetric, finite.
SymmetricEigen symmetric_eigen(std::vector<double> matrix, size_t n);

}  // namespace kvikk

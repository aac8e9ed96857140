#pragma once
// The basis in which a key's squared error is the error of its scores, and the bits of its
// coordinates. With S = E[q q^T], A = S^(1/2), and U the eigenvectors of A Cov[k] A, the vector
// y = H U^T A k has uncorrelated groups of 16 coordinates of falling variance, and
// |y - y^|^2 = E (q.k - q.k^)^2. H is a Hadamard transform inside each group, which makes its
// coordinates alike. Bits go where they remove most error.

#include <vector>

#include "kv/coder.h"

namespace kvikk {

inline constexpr size_t kFittedGroup = 16;

// Fills forward, backward, deviation and layout of `out`. query_moments, key_covariance: [size,
// size], symmetric and finite; size: a multiple of 16. bits: of a coordinate on average.
void fit_basis(const std::vector<double>& query_moments, const std::vector<double>& key_covariance,
               size_t size, uint32_t bits, KeyConditioning& out);

// Bits (0, 2, 3, 4 or 8) of groups with these variances, falling; their sum is at most
// bits * groups and the error is the least. Also falling.
std::vector<uint32_t> share_bits(const std::vector<double>& variances, uint32_t bits);

}  // namespace kvikk

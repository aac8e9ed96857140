#pragma once
// The AVX-512 matrix products, one entry a panel format. The AMX level calls them for few rows.

namespace kvikk {
struct MatmulArgs;
}

namespace kvikk::avx512 {

void matmul_q8(const MatmulArgs& args);
void matmul_q4(const MatmulArgs& args);
void matmul_q4m(const MatmulArgs& args);
void matmul_q5(const MatmulArgs& args);
void matmul_q5m(const MatmulArgs& args);
void matmul_q4k(const MatmulArgs& args);
void matmul_q5k(const MatmulArgs& args);
void matmul_q6k(const MatmulArgs& args);
void matmul_f32(const MatmulArgs& args);
void matmul_f16(const MatmulArgs& args);
void matmul_bf16(const MatmulArgs& args);

}  // namespace kvikk::avx512

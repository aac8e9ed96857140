#pragma once
// Other people's caches that drop tokens, to measure beside codes of the same size: once a prompt
// is computed, every layer and KV head keeps one token in kEvictionKeepsOneIn of it, exactly, and
// the answer sees those and itself.
//
//   streaming  StreamingLLM (arXiv 2309.17453): the first tokens and the newest
//   snapkv     SnapKV (2404.14469): those that the prompt's last queries look at, and these
//   pyramidkv  PyramidKV (2406.02069): the same with more in the lower layers than in the upper
//
// As published: attention is averaged over the last 32 queries and the heads of a group, and over
// 7 neighbours, before the largest are taken.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "kv/attend.h"
#include "kv/registry.h"
#include "kv/sequence_kv.h"

namespace kvikk {

class TokenEvictor {
 public:
  inline static constexpr size_t kWindow = 32;  // queries that look, and newest tokens that stay
  inline static constexpr size_t kSinks = 4;    // first tokens that streaming keeps
  inline static constexpr size_t kPooled = 7;
  inline static constexpr size_t kPyramidSteepness = 20;

  // heads: query heads; layers of the model.
  TokenEvictor(KvEviction kind, size_t layers, size_t heads);

  // Keeps the newest queries of each sequence of a step: [rows, stride], scaled.
  void observe(std::span<const Span> spans, size_t layer, const float* queries, size_t stride);
  // What stays of a sequence whose prompt is computed. Its last queries, up to kWindow, must have
  // been observed. Forgets them.
  KeptTokens choose(Compute& compute, SequenceKv& sequence);
  void forget(const SequenceKv& sequence) { seen_.erase(&sequence); }

  // Tokens that a layer keeps of a prompt.
  size_t budget(size_t tokens, size_t layer) const;

 private:
  struct Newest {
    size_t begin = 0, end = 0;   // positions, contiguous
    std::vector<float> queries;  // [position % kWindow][heads * head_dim]
  };

  std::vector<uint32_t> choose_head(SequenceKv& sequence, size_t group, size_t layer_in_group,
                                    size_t kv_head, const Newest& newest) const;
  // The softmax weights of the window's queries, summed over them and the heads: [tokens].
  std::vector<float> attention(SequenceKv& sequence, size_t group, size_t layer_in_group,
                               size_t kv_head, const Newest& newest) const;

  KvEviction kind_;
  size_t layers_, heads_;
  std::map<const SequenceKv*, std::vector<Newest>> seen_;  // [layer]
};

}  // namespace kvikk

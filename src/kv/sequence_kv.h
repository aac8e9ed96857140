#pragma once
// The cache of one sequence: for each group of layers, the slabs that hold its tokens in order.
// Positions are absolute; slab i holds positions 64 i .. 64 i + 63.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "kv/page_pool.h"

namespace kvikk {

// Positions that stay when a sequence evicts tokens: ascending, of each layer and KV head of a
// group, as many for all heads of a layer. A group without any is left as it is.
struct KeptTokens {
  std::vector<std::vector<std::vector<uint32_t>>> groups;  // [group][layer in group * kv_heads + h]
};

class SequenceKv {
 public:
  explicit SequenceKv(PagePool& pool);
  ~SequenceKv();
  SequenceKv(SequenceKv&& other) noexcept;
  SequenceKv& operator=(SequenceKv&& other) noexcept;
  SequenceKv(const SequenceKv&) = delete;
  SequenceKv& operator=(const SequenceKv&) = delete;

  PagePool& pool() const { return *pool_; }
  // Tokens whose keys and values are stored.
  size_t length() const { return length_; }

  // Makes room for `tokens` more, each slab to be written owned by this sequence alone. The length
  // does not change until advance(). Errors: kExhausted; then nothing has changed but slabs already
  // taken.
  Status reserve(size_t tokens);
  // Slabs of a group that reserve(tokens) will take.
  size_t slabs_to_reserve(size_t group, size_t tokens) const;
  void advance(size_t tokens);

  // Forgets all tokens from `length` on. Precondition: can_truncate(length).
  void truncate(size_t length);
  // Whether all groups still hold what a token at `length` sees.
  bool can_truncate(size_t length) const;

  // Forgets all stored tokens but `kept`. These move to the places just before length(), so that
  // what a coming token sees stays one range; slabs before them go back. make_free(group) is called
  // before a slab is taken. The past can then neither be taken back nor shared. Errors: kExhausted;
  // then nothing is lost.
  Status evict(const Kernels& kernels, const KeptTokens& kept,
               const std::function<void(size_t group)>& make_free);
  bool evicted() const { return evicted_at_ > 0; }
  // The first place that a coming token sees in a layer.
  size_t first_kept(size_t group, size_t layer_in_group) const {
    return evicted() ? first_kept_[group][layer_in_group] : 0;
  }

  // Gives back the slabs that no coming token can see.
  void drop_unseen();

  // A sequence with the same tokens that shares all slabs with this one.
  SequenceKv fork() const;

  // Appends a slab of each group that holds the next 64 tokens, sharing it, and takes the first
  // `tokens` of them. The length must be a multiple of 64. kNoSlab marks a slab of a sliding group
  // that nobody needs any more.
  void append_shared(const std::vector<SlabId>& slabs, size_t tokens = kPageTokens);

  SlabId slab(size_t group, size_t index) const { return groups_[group][index]; }
  size_t slab_count(size_t group) const { return groups_[group].size(); }

 private:
  void release_all();
  // Makes a slab this sequence's alone. Errors: kExhausted.
  Status own(size_t group, size_t index);
  void move_kept(const Kernels& kernels, size_t group, size_t layer_in_group, size_t kv_head,
                 const std::vector<uint32_t>& kept);

  PagePool* pool_;
  std::vector<std::vector<SlabId>> groups_;  // [group][slab]
  size_t length_ = 0;
  size_t evicted_at_ = 0;                        // the length then; 0: nothing was evicted
  std::vector<std::vector<size_t>> first_kept_;  // [group][layer in group], once evicted
};

// Lines that say what decides how a cache's bytes are to be read: the model's key (a hash of its
// weights), the codec with all that was measured for it, the shape.
std::string cache_identity(const KvShape& shape, const std::string& model_key);

// A saved cache: a header that names the model, the shape and the tokens, the slabs, a checksum.
// `model_key` identifies the weights (a hash); a file of another model is refused.
Status save_sequence(const SequenceKv& sequence, const std::vector<int32_t>& tokens,
                     const std::string& model_key, const std::string& path);

struct LoadedSequence {
  SequenceKv sequence;
  std::vector<int32_t> tokens;
};
// Errors: kNotFound, kDamaged (truncated, changed bytes), kInvalidArgument (another model, shape or
// format: says which), kExhausted (the pool is too small).
Result<LoadedSequence> load_sequence(PagePool& pool, const std::string& model_key,
                                     const std::string& path);

}  // namespace kvikk

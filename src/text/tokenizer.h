#pragma once
// Text to tokens and back, for one model. Immutable and safe to use from many threads.
//
// What the original pipeline of a family does (the `tokenizers` library with the published
// tokenizer.json) is right; tests compare with it. User text never becomes a control token unless
// the caller asks: text that spells one is plain text.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kvikk/token.h"
#include "text/vocabulary.h"

namespace kvikk {

struct Pipeline;

struct EncodeOptions {
  bool parse_special = false;  // text that spells a control token becomes that token
  bool add_bos_eos = false;    // begin and end as the model's file says
};

class Tokenizer {
 public:
  // As a GGUF file describes it. kDamaged where the vocabulary contradicts itself, kUnsupported
  // where its kind is not known.
  static Result<Tokenizer> create(VocabularyData data);
  static Result<Tokenizer> create(VocabularyData data, Pipeline pipeline);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Any bytes: malformed UTF-8 reads as U+FFFD. Time and memory are linear in the text (times a
  // logarithm for a single unbroken word).
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const;

  // Well-formed UTF-8: bytes that are none become U+FFFD. Control tokens are left out unless
  // keep_special; ids that the vocabulary does not have are left out. A space that encode() put
  // before the text is taken away again.
  std::string decode(std::span<const TokenId> tokens, bool keep_special) const;

  // The raw bytes that a token stands for after others, possibly a part of a character; a control
  // token's is its name. Empty for an id that the vocabulary does not have.
  std::string_view token_bytes(TokenId id) const;
  // The same for the first token of a text. *is_begun: the next one is no longer the first.
  std::string first_token_bytes(TokenId id, bool* is_begun) const;
  // The id of the token with exactly this name in the file, for example "<|im_end|>".
  std::optional<TokenId> find_token(std::string_view name) const;

  // Control and unknown tokens: those that decode() hides.
  bool is_control(TokenId id) const;
  // The tokens after which an answer is complete: EOS, EOT and the family's end of turn.
  bool is_end_of_generation(TokenId id) const;

  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  std::optional<TokenId> eot() const;
  std::optional<TokenId> unk() const;
  std::optional<TokenId> pad() const;
  // encode() with add_bos_eos puts something before or after the text.
  bool adds_bos() const;
  bool adds_eos() const;
  size_t size() const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

}  // namespace kvikk

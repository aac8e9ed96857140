// The concatenation of what a stream returns equals Tokenizer::decode of the same tokens.
#include "text/detokenize_stream.h"

#include "text/utf8.h"

namespace kvikk {

DetokenizeStream::DetokenizeStream(const Tokenizer& tokenizer, DetokenizeOptions options)
    : tokenizer_(&tokenizer),
      options_(options),
      drops_space_(options.at_start_of_text && tokenizer.adds_space_prefix()) {}

std::string DetokenizeStream::push(TokenId id) {
  if (tokenizer_->is_control(id) && !options_.keep_special) return {};
  std::string_view bytes = tokenizer_->token_bytes(id);
  if (bytes.empty()) return {};
  if (drops_space_ && bytes.front() == ' ') bytes.remove_prefix(1);
  drops_space_ = false;
  held_ += bytes;
  const size_t complete = held_.size() - incomplete_utf8_tail(held_);
  std::string text = replace_invalid_utf8(std::string_view(held_).substr(0, complete));
  held_.erase(0, complete);
  return text;
}

std::string DetokenizeStream::finish() {
  std::string text = replace_invalid_utf8(held_);
  held_.clear();
  drops_space_ = options_.at_start_of_text && tokenizer_->adds_space_prefix();
  return text;
}

}  // namespace kvikk

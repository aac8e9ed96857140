// The concatenation of what a stream returns equals Tokenizer::decode of the same tokens.
#include "text/detokenize_stream.h"

#include "text/utf8.h"

namespace kvikk {

DetokenizeStream::DetokenizeStream(const Tokenizer& tokenizer, DetokenizeOptions options)
    : tokenizer_(&tokenizer), options_(options), is_begun_(!options.at_start_of_text) {}

std::string DetokenizeStream::push(TokenId id) {
  if (tokenizer_->is_control(id) && !options_.keep_special) return {};
  if (is_begun_) {
    held_ += tokenizer_->token_bytes(id);
  } else {
    held_ += tokenizer_->first_token_bytes(id, &is_begun_);
  }
  const size_t complete = held_.size() - incomplete_utf8_tail(held_);
  std::string text = replace_invalid_utf8(std::string_view(held_).substr(0, complete));
  held_.erase(0, complete);
  return text;
}

std::string DetokenizeStream::finish() {
  std::string text = replace_invalid_utf8(held_);
  held_.clear();
  is_begun_ = !options_.at_start_of_text;
  return text;
}

}  // namespace kvikk

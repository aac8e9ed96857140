// Encoding in four steps: find the added tokens, normalise what lies between them, find those that
// are looked for after that, cut the rest into pieces for the token model.
#include "text/tokenizer.h"

#include <algorithm>

#include "base/check.h"
#include "text/byte_bpe.h"
#include "text/char_class.h"
#include "text/piece_bpe.h"
#include "text/pipeline.h"
#include "text/token_texts.h"
#include "text/unigram.h"
#include "text/utf8.h"

namespace kvikk {
namespace {

// Names under which published models end a turn or a text. Files state one or two of them as ids;
// the others are found by name, among control tokens only.
constexpr std::string_view kEndOfGenerationNames[] = {
    "<|im_end|>",    "<|eot_id|>",      "<|eom_id|>",
    "<|end|>",       "<|endoftext|>",   "<|end_of_text|>",
    "<end_of_turn>", "<|end_of_turn|>", "<｜end▁of▁sentence｜>",
    "<|eot|>",       "<EOT>",           "<|END_OF_TURN_TOKEN|>",
    "<|return|>",    "<|call|>",        "<end_of_utterance>",
};

bool is_end_of_generation_name(std::string_view name) {
  return std::find(std::begin(kEndOfGenerationNames), std::end(kEndOfGenerationNames), name) !=
         std::end(kEndOfGenerationNames);
}

size_t skip_white_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    const DecodedChar c = decode_valid_utf8(text.data() + at);
    if (!is_white_space(c.code_point)) break;
    at += c.bytes;
  }
  return at;
}

// Where the character before `at` begins; at > 0.
size_t character_before(std::string_view text, size_t at) {
  do {
    --at;
  } while (is_utf8_continuation(text[at]));
  return at;
}

// The white space before `at`, not beyond `first`, is left out.
size_t skip_white_space_back(std::string_view text, size_t first, size_t at) {
  while (at > first) {
    const size_t before = character_before(text, at);
    if (!is_white_space(decode_valid_utf8(text.data() + before).code_point)) break;
    at = before;
  }
  return at;
}

bool touches_word(std::string_view text, size_t begin, size_t end) {
  const auto is_word = [&](size_t at) {
    return is_word_character(decode_valid_utf8(text.data() + at).code_point);
  };
  return (begin > 0 && is_word(character_before(text, begin))) ||
         (end < text.size() && is_word(end));
}

}  // namespace

struct Tokenizer::Parts {
  void set_tokens(const VocabularyData& data);
  Status set_model(const VocabularyData& data);
  template <class Emit>
  void find_chunks(const AddedTokens& tokens, std::string_view text, bool parse_special,
                   Emit&& emit) const;

  AddedTokens added;
  AddedTokens normalized_added;
  std::vector<std::pair<std::string, TokenId>> normalized_names;  // as in the file
  Pipeline pipeline;
  TokenTexts written;  // as in the file; only where first tokens are decoded differently
  TokenTexts texts;
  std::unique_ptr<const TokenModel> model;
  std::vector<TokenType> types;   // [tokens]
  std::vector<bool> ends_answer;  // [tokens]
  std::optional<TokenId> bos, eos, eot, unk, pad;
};

// emit(string_view, TokenId) gets stretches of plain text, with -1, and the tokens between them.
template <class Emit>
void Tokenizer::Parts::find_chunks(const AddedTokens& tokens, std::string_view text,
                                   bool parse_special, Emit&& emit) const {
  size_t plain = 0;
  for (size_t at = 0; at < text.size() && !tokens.empty();) {
    const AddedTokens::Match match = tokens.find(text, at);
    at = match.end;
    if (match.token == nullptr) break;
    const AddedToken& token = *match.token;
    if (!parse_special && types[static_cast<size_t>(token.id)] != TokenType::kUserDefined) continue;
    if (token.single_word && touches_word(text, match.begin, match.end)) continue;
    const size_t end = token.rstrip ? skip_white_space(text, match.end) : match.end;
    const size_t begin =
        token.lstrip ? skip_white_space_back(text, plain, match.begin) : match.begin;
    if (plain < begin) emit(text.substr(plain, begin - plain), TokenId{-1});
    emit(std::string_view(), token.id);
    plain = std::max(plain, end);
  }
  if (plain < text.size()) emit(text.substr(plain), TokenId{-1});
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

// What each token means once it is made or seen.
void Tokenizer::Parts::set_tokens(const VocabularyData& data) {
  const size_t count = data.tokens.size();
  const bool keeps_written = pipeline.decoder.depends_on_first();
  texts.reserve(count, count * 8);
  if (keeps_written) written.reserve(count, count * 8);
  types = data.types;
  ends_answer.resize(count);
  for (size_t id = 0; id < count; ++id) {
    const std::string& token = data.tokens[id];
    const TokenType type = types[id];
    // The names of control tokens are no text, and an added token of a byte-level vocabulary is
    // written as it is.
    const bool is_literal = type == TokenType::kControl || type == TokenType::kUnknown ||
                            type == TokenType::kUnused ||
                            (data.model == "gpt2" && type != TokenType::kNormal);
    texts.add(is_literal ? token : pipeline.decoder.decode(token, false));
    if (keeps_written) written.add(token);
    ends_answer[id] = type == TokenType::kControl && is_end_of_generation_name(token);
  }
  bos = data.bos;
  eos = data.eos;
  eot = data.eot;
  unk = data.unk;
  pad = data.pad;
  if (eos.has_value()) ends_answer[*eos] = true;
  if (eot.has_value()) ends_answer[*eot] = true;
  for (const TokenId id : data.end_tokens) ends_answer[id] = true;
}

Status Tokenizer::Parts::set_model(const VocabularyData& data) {
  if (data.model == "gpt2") {
    TRY_ASSIGN(model, ByteBpe::create(data, texts, pipeline.ignore_merges));
  } else if (data.model == "llama") {
    TRY_ASSIGN(model, PieceBpe::create(data, texts));
  } else if (data.model == "bpe") {
    TRY_ASSIGN(model, CharBpe::create(data, pipeline.char_bpe));
  } else if (data.model == "t5") {
    TRY_ASSIGN(model, Unigram::create(data));
  } else {
    TRY_ASSIGN(model, WordPiece::create(data, pipeline.wordpiece));
  }
  return ok_status();
}

Result<Tokenizer> Tokenizer::create(VocabularyData data) {
  TRY_ASSIGN(Pipeline pipeline, gguf_pipeline(&data));
  return create(std::move(data), std::move(pipeline));
}

Result<Tokenizer> Tokenizer::create(VocabularyData data, Pipeline pipeline) {
  TRY(check_vocabulary(&data));
  auto parts = std::make_unique<Parts>();
  TRY_ASSIGN(parts->added, AddedTokens::create(std::move(pipeline.added)));
  for (AddedToken& token : pipeline.normalized_added) {
    parts->normalized_names.emplace_back(token.text, token.id);
    TextArena arena;
    token.text = std::string(pipeline.normalizer.normalize(token.text, &arena));
    if (token.text.size() > kAddedTokenBytesMax) {
      return unsupported("token " + std::to_string(token.id) + " has " +
                         std::to_string(token.text.size()) + " bytes once normalised");
    }
  }
  TRY_ASSIGN(parts->normalized_added, AddedTokens::create(std::move(pipeline.normalized_added)));
  parts->pipeline = std::move(pipeline);
  parts->set_tokens(data);
  TRY(parts->set_model(data));
  return Tokenizer(std::move(parts));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::string well_formed;
  if (!is_valid_utf8(text)) {
    well_formed = replace_invalid_utf8(text);
    text = well_formed;
  }
  const Parts& parts = *parts_;
  const Pipeline& pipeline = parts.pipeline;
  std::vector<TokenId> out;
  out.reserve(text.size() / 4 + 2);
  if (options.add_bos_eos) out = pipeline.prefix;
  EncodeState state(text.size());
  TextArena arena;
  const auto encode_plain = [&](std::string_view plain, bool is_first) {
    pipeline.pretokenizer.split(plain, is_first, &arena, [&](std::string_view piece) {
      parts.model->encode(piece, &state, &out);
    });
  };
  parts.find_chunks(
      parts.added, text, options.parse_special, [&](std::string_view chunk, TokenId token) {
        if (token >= 0) {
          out.push_back(token);
          return;
        }
        const bool is_first = chunk.data() == text.data() && pipeline.normalizer.keeps_first(chunk);
        const std::string_view plain = pipeline.normalizer.normalize(chunk, &arena);
        parts.find_chunks(parts.normalized_added, plain, options.parse_special,
                          [&](std::string_view rest, TokenId inner) {
                            if (inner >= 0) {
                              out.push_back(inner);
                            } else {
                              encode_plain(rest, is_first && rest.data() == plain.data());
                            }
                          });
      });
  if (options.add_bos_eos) out.insert(out.end(), pipeline.suffix.begin(), pipeline.suffix.end());
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> tokens, bool keep_special) const {
  std::string out;
  bool is_begun = false;
  for (const TokenId id : tokens) {
    if (!keep_special && is_control(id)) continue;
    if (is_begun) {
      out += token_bytes(id);
    } else {
      out += first_token_bytes(id, &is_begun);
    }
  }
  return is_valid_utf8(out) ? out : replace_invalid_utf8(out);
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (id < 0 || static_cast<size_t>(id) >= size()) return {};
  return parts_->texts(id);
}

std::string Tokenizer::first_token_bytes(TokenId id, bool* is_begun) const {
  std::string bytes(token_bytes(id));
  const TokenDecoder& decoder = parts_->pipeline.decoder;
  if (decoder.drops_first_character()) {
    // One character of the whole text goes, so tokens without text do not begin it.
    if (bytes.empty()) return bytes;
    *is_begun = true;
    std::string first;
    append_utf8(first, decoder.first_character());
    if (bytes.starts_with(first)) bytes.erase(0, first.size());
    return bytes;
  }
  if (id < 0 || static_cast<size_t>(id) >= size()) return bytes;
  *is_begun = true;
  if (decoder.depends_on_first() && !is_control(id)) {
    return decoder.decode(parts_->written(id), true);
  }
  return bytes;
}

std::optional<TokenId> Tokenizer::find_token(std::string_view name) const {
  const AddedTokens::Match match = parts_->added.find(name, 0);
  if (match.token != nullptr && match.begin == 0 && match.end == name.size()) {
    return match.token->id;
  }
  for (const auto& [own, id] : parts_->normalized_names) {
    if (own == name) return id;
  }
  return std::nullopt;
}

bool Tokenizer::is_control(TokenId id) const {
  if (id < 0 || static_cast<size_t>(id) >= size()) return false;
  return parts_->types[id] == TokenType::kControl || parts_->types[id] == TokenType::kUnknown;
}

bool Tokenizer::is_end_of_generation(TokenId id) const {
  return id >= 0 && static_cast<size_t>(id) < size() && parts_->ends_answer[id];
}

std::optional<TokenId> Tokenizer::bos() const { return parts_->bos; }
std::optional<TokenId> Tokenizer::eos() const { return parts_->eos; }
std::optional<TokenId> Tokenizer::eot() const { return parts_->eot; }
std::optional<TokenId> Tokenizer::unk() const { return parts_->unk; }
std::optional<TokenId> Tokenizer::pad() const { return parts_->pad; }
bool Tokenizer::adds_bos() const { return !parts_->pipeline.prefix.empty(); }
bool Tokenizer::adds_eos() const { return !parts_->pipeline.suffix.empty(); }
size_t Tokenizer::size() const { return parts_->texts.size(); }

}  // namespace kvikk

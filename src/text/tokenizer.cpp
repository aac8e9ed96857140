// Encoding in three steps: find the added tokens, normalise what lies between them, hand that to
// the token model.
#include "text/tokenizer.h"

#include <algorithm>

#include "base/check.h"
#include "text/added_tokens.h"
#include "text/byte_bpe.h"
#include "text/char_class.h"
#include "text/nfc.h"
#include "text/piece_bpe.h"
#include "text/token_texts.h"
#include "text/utf8.h"

namespace kvikk {
namespace {

// Names under which published models end a turn or a text. GGUF states one or two of them as ids;
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

bool is_gemma(const VocabularyData& data) { return data.architecture.starts_with("gemma"); }

// GGUF conversion writes the user-defined runs of U+2581 of Gemma's vocabulary with plain spaces.
// The original finds only U+2581 itself in a text; runs of spaces come from merges.
void restore_space_marks(VocabularyData* data) {
  for (size_t id = 0; id < data->tokens.size() && id < data->types.size(); ++id) {
    std::string& token = data->tokens[id];
    const bool only_spaces = token.find_first_not_of(' ') == std::string::npos;
    if (data->types[id] != TokenType::kUserDefined || !only_spaces) continue;
    std::string marks;
    for (size_t i = 0; i < token.size(); ++i) marks += PieceBpe::kSpaceMark;
    token = std::move(marks);
  }
}

// Phi-3's control tokens swallow the white space that follows them; GGUF does not say so.
bool strips_right(const VocabularyData& data, size_t id) {
  if (data.architecture != "phi3" || data.model != "llama") return false;
  const std::string& token = data.tokens[id];
  return is_added_token(data.types[id]) && token != "<unk>" && token != "<s>" &&
         token != "<|endoftext|>";
}

std::string bytes_of(const VocabularyData& data, size_t id) {
  const std::string& token = data.tokens[id];
  const TokenType type = data.types[id];
  if (data.model == "gpt2") {
    if (type != TokenType::kNormal) return token;
    return ByteBpe::token_bytes(token).value_or(token);
  }
  if (type == TokenType::kByte) {
    const std::optional<char> byte = PieceBpe::token_byte(token);
    return byte.has_value() ? std::string(1, *byte) : token;
  }
  const bool is_text = type == TokenType::kNormal || type == TokenType::kUserDefined;
  return is_text ? PieceBpe::with_plain_spaces(token) : token;
}

size_t skip_white_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    const DecodedChar c = decode_valid_utf8(text.data() + at);
    if (!is_white_space(c.code_point)) break;
    at += c.bytes;
  }
  return at;
}

// A stretch of plain text [begin, end), or an added token.
struct Chunk {
  size_t begin;
  size_t end;
  TokenId token;  // -1: plain text
};

}  // namespace

struct Tokenizer::Parts {
  explicit Parts(AddedTokens tokens) : added(std::move(tokens)) {}

  void set_tokens(const VocabularyData& data);
  Status set_model(const VocabularyData& data);
  std::vector<Chunk> find_chunks(std::string_view text, bool parse_special) const;
  std::string_view normalize(std::string_view text, std::vector<Chunk>* chunks,
                             std::string* storage) const;

  AddedTokens added;
  TokenTexts texts;
  std::unique_ptr<const TokenModel> model;
  std::vector<TokenType> types;   // [tokens]
  std::vector<bool> ends_answer;  // [tokens]
  std::vector<bool> eats_spaces;  // [tokens] white space after the token is dropped
  std::optional<TokenId> bos, eos, eot, unk, pad;
  bool adds_bos = false;
  bool adds_eos = false;
  bool nfc = false;
  bool has_space_marks = false;  // the model writes U+2581 for a space
  bool space_prefix = false;
};

std::vector<Chunk> Tokenizer::Parts::find_chunks(std::string_view text, bool parse_special) const {
  std::vector<Chunk> chunks;
  size_t plain = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedTokens::Match match = added.find(text, at);
    at = match.end;
    const bool taken =
        match.token >= 0 && (parse_special || types[match.token] == TokenType::kUserDefined);
    if (!taken && match.token >= 0) continue;
    if (plain < match.begin) chunks.push_back({plain, match.begin, -1});
    if (!taken) return chunks;
    chunks.push_back({match.begin, match.end, match.token});
    if (eats_spaces[match.token]) at = skip_white_space(text, at);
    plain = at;
  }
  if (plain < text.size()) chunks.push_back({plain, text.size(), -1});
  return chunks;
}

// The text that the chunks' bounds are in afterwards: `text` itself where nothing changes.
std::string_view Tokenizer::Parts::normalize(std::string_view text, std::vector<Chunk>* chunks,
                                             std::string* storage) const {
  const bool composes = nfc && !is_surely_nfc(text);
  const bool unmarks = has_space_marks && text.find(PieceBpe::kSpaceMark) != std::string_view::npos;
  if (!composes && !unmarks && !space_prefix) return text;
  storage->reserve(text.size() + chunks->size());
  for (Chunk& chunk : *chunks) {
    if (chunk.token >= 0) continue;
    const std::string_view plain = text.substr(chunk.begin, chunk.end - chunk.begin);
    chunk.begin = storage->size();
    if (space_prefix) storage->push_back(' ');
    if (composes) {
      storage->append(to_nfc(plain));
    } else if (unmarks) {
      storage->append(PieceBpe::with_plain_spaces(plain));
    } else {
      storage->append(plain);
    }
    chunk.end = storage->size();
  }
  return *storage;
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

// What each token means once it is made or seen.
void Tokenizer::Parts::set_tokens(const VocabularyData& data) {
  const size_t count = data.tokens.size();
  texts.reserve(count, count * 8);
  types = data.types;
  ends_answer.resize(count);
  eats_spaces.resize(count);
  for (size_t id = 0; id < count; ++id) {
    texts.add(bytes_of(data, id));
    ends_answer[id] =
        types[id] == TokenType::kControl && is_end_of_generation_name(data.tokens[id]);
    eats_spaces[id] = strips_right(data, id);
  }
  bos = data.bos;
  eos = data.eos;
  eot = data.eot;
  unk = data.unk;
  pad = data.pad;
  if (eos.has_value()) ends_answer[*eos] = true;
  if (eot.has_value()) ends_answer[*eot] = true;
}

Status Tokenizer::Parts::set_model(const VocabularyData& data) {
  adds_eos = data.add_eos.value_or(false);
  if (data.model == "gpt2") {
    TRY_ASSIGN(Pretokenizer pretokenizer, Pretokenizer::create(data.pre));
    nfc = pretokenizer.normalizes_nfc();
    adds_bos = data.add_bos.value_or(pretokenizer.adds_bos());
    TRY_ASSIGN(model, ByteBpe::create(data, texts, std::move(pretokenizer)));
    return ok_status();
  }
  has_space_marks = true;
  space_prefix = data.add_space_prefix.value_or(!is_gemma(data));
  adds_bos = data.add_bos.value_or(true);
  TRY_ASSIGN(model, PieceBpe::create(data, texts));
  return ok_status();
}

Result<Tokenizer> Tokenizer::create(VocabularyData data) {
  if (data.model != "gpt2" && data.model != "llama") {
    return unsupported("tokenizer model '" + data.model +
                       "' (tokenizer.ggml.model) is not supported; supported are: gpt2 llama");
  }
  if (data.model == "llama" && is_gemma(data)) restore_space_marks(&data);
  TRY(check_vocabulary(&data));
  TRY_ASSIGN(AddedTokens added, AddedTokens::create(data));
  auto parts = std::make_unique<Parts>(std::move(added));
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
  std::vector<Chunk> chunks = parts_->find_chunks(text, options.parse_special);
  std::string storage;
  text = parts_->normalize(text, &chunks, &storage);

  std::vector<TokenId> out;
  out.reserve(text.size() / 4 + 2);
  const bool has_bos = options.add_bos_eos && parts_->adds_bos && parts_->bos.has_value();
  const bool has_eos = options.add_bos_eos && parts_->adds_eos && parts_->eos.has_value();
  if (has_bos) out.push_back(*parts_->bos);
  EncodeState state(text.size());
  for (const Chunk& chunk : chunks) {
    if (chunk.token >= 0) {
      out.push_back(chunk.token);
    } else {
      parts_->model->encode(text.substr(chunk.begin, chunk.end - chunk.begin), &state, &out);
    }
  }
  if (has_eos) out.push_back(*parts_->eos);
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> tokens, bool keep_special) const {
  std::string out;
  for (const TokenId id : tokens) {
    if (keep_special || !is_control(id)) out += token_bytes(id);
  }
  if (parts_->space_prefix && out.starts_with(' ')) out.erase(0, 1);
  return is_valid_utf8(out) ? out : replace_invalid_utf8(out);
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (id < 0 || static_cast<size_t>(id) >= size()) return {};
  return parts_->texts(id);
}

std::optional<TokenId> Tokenizer::find_token(std::string_view name) const {
  const AddedTokens::Match match = parts_->added.find(name, 0);
  const bool exact = match.token >= 0 && match.begin == 0 && match.end == name.size();
  return exact ? std::optional<TokenId>(match.token) : std::nullopt;
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
bool Tokenizer::adds_bos() const { return parts_->adds_bos; }
bool Tokenizer::adds_eos() const { return parts_->adds_eos; }
bool Tokenizer::adds_space_prefix() const { return parts_->space_prefix; }
size_t Tokenizer::size() const { return parts_->texts.size(); }

}  // namespace kvikk

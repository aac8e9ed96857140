// A message is a list of fields, each with a number and a wire type; unknown ones are skipped.
#include "text/sentencepiece_file.h"

#include <cstring>
#include <string>

namespace kvikk {
namespace {

struct Field {
  uint64_t number = 0;
  uint64_t value = 0;      // of a varint or fixed32 field
  std::string_view bytes;  // of a string or an inner message
};

class Message {
 public:
  explicit Message(std::string_view bytes) : left_(bytes) {}

  bool done() const { return left_.empty(); }
  // False where the bytes are no field.
  bool next(Field* field) {
    uint64_t key;
    if (!take_varint(&key)) return false;
    *field = {key >> 3, 0, {}};
    switch (key & 7) {
      case 0:
        return take_varint(&field->value);
      case 1:
        return take(8, &field->bytes);
      case 2: {
        uint64_t size;
        return take_varint(&size) && take(size, &field->bytes);
      }
      case 5: {
        if (!take(4, &field->bytes)) return false;
        uint32_t value;
        std::memcpy(&value, field->bytes.data(), sizeof(value));
        field->value = value;
        return true;
      }
      default:
        return false;
    }
  }

 private:
  bool take(uint64_t size, std::string_view* out) {
    if (size > left_.size()) return false;
    *out = left_.substr(0, size);
    left_.remove_prefix(size);
    return true;
  }
  bool take_varint(uint64_t* out) {
    *out = 0;
    for (int shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      *out |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  std::string_view left_;
};

// Calls take(field) for each field; false where the message is damaged.
template <class Take>
bool read_message(std::string_view bytes, Take&& take) {
  Message message(bytes);
  Field field;
  while (!message.done()) {
    if (!message.next(&field)) return false;
    if (!take(field)) return false;
  }
  return true;
}

bool read_piece(std::string_view bytes, VocabularyData* data) {
  if (data->tokens.size() == kVocabularyTokensMax) return false;
  std::string text;
  float score = 0;
  auto type = TokenType::kNormal;
  const bool ok = read_message(bytes, [&](const Field& field) {
    if (field.number == 1) text = field.bytes;
    if (field.number == 2) {
      const auto bits = static_cast<uint32_t>(field.value);
      std::memcpy(&score, &bits, sizeof(score));
    }
    if (field.number == 3) {
      if (field.value < 1 || field.value > 6) return false;
      type = static_cast<TokenType>(field.value);
    }
    return true;
  });
  data->tokens.push_back(std::move(text));
  data->scores.push_back(score);
  data->types.push_back(type);
  return ok;
}

// An id of -1 says that there is no such token.
std::optional<TokenId> read_id(uint64_t value) {
  const auto id = static_cast<int64_t>(value);
  if (id < 0 || id > INT32_MAX) return std::nullopt;
  return static_cast<TokenId>(id);
}

bool read_trainer(std::string_view bytes, VocabularyData* data, uint64_t* kind) {
  return read_message(bytes, [&](const Field& field) {
    if (field.number == 3) *kind = field.value;
    if (field.number == 40) data->unk = read_id(field.value);
    if (field.number == 41) data->bos = read_id(field.value);
    if (field.number == 42) data->eos = read_id(field.value);
    if (field.number == 43) data->pad = read_id(field.value);
    return true;
  });
}

bool read_normalizer(std::string_view bytes, VocabularyData* data) {
  return read_message(bytes, [&](const Field& field) {
    if (field.number == 2) data->charsmap = field.bytes;
    if (field.number == 3) data->add_space_prefix = field.value != 0;
    if (field.number == 4) data->remove_extra_whitespaces = field.value != 0;
    return true;
  });
}

}  // namespace

Result<VocabularyData> read_sentencepiece(std::string_view name, std::string_view bytes) {
  constexpr uint64_t kUnigram = 1;
  constexpr uint64_t kBpe = 2;
  VocabularyData data;
  uint64_t kind = kUnigram;
  // What the format says of fields that are not written.
  data.unk = 0;
  data.bos = 1;
  data.eos = 2;
  data.add_space_prefix = true;
  data.remove_extra_whitespaces = true;
  const bool ok = read_message(bytes, [&](const Field& field) {
    if (field.number == 1) return read_piece(field.bytes, &data);
    if (field.number == 2) return read_trainer(field.bytes, &data, &kind);
    return field.number != 3 || read_normalizer(field.bytes, &data);
  });
  if (!ok) return damaged(std::string(name) + ": is no SentencePiece model, or is cut");
  if (data.tokens.empty()) return damaged(std::string(name) + ": has no pieces");
  if (kind != kUnigram && kind != kBpe) {
    return unsupported(std::string(name) + ": is of the kind " + std::to_string(kind) +
                       "; supported are 1 (unigram) and 2 (BPE)");
  }
  if (kind == kBpe && *data.remove_extra_whitespaces) {
    return unsupported(std::string(name) + ": a BPE model that makes several spaces one");
  }
  data.model = kind == kBpe ? "llama" : "t5";
  return data;
}

}  // namespace kvikk

// The parser calls back for every value; a stack of open containers builds the document.
#include "text/tokenizer_json_file.h"

#include <optional>

#include "text/merge_table.h"
#include "text/vocabulary.h"

namespace kvikk {
namespace {

using Json = nlohmann::json;

// The part of the callbacks that builds a document.
class DocumentBuilder {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  explicit DocumentBuilder(Json* document) : document_(document) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(number_integer_t value) { return add(value); }
  bool number_unsigned(number_unsigned_t value) { return add(value); }
  bool number_float(number_float_t value, const string_t&) { return add(value); }
  bool string(string_t& value) { return add(std::move(value)); }
  bool binary(binary_t&) { return fail("holds binary data"); }
  bool key(string_t& value) {
    key_ = std::move(value);
    return true;
  }
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  template <class Exception>
  bool parse_error(size_t position, const std::string&, const Exception& exception) {
    const std::string text = exception.what();
    const size_t colon = text.find(": ");
    return fail("is no JSON from byte " + std::to_string(position) + ": " +
                text.substr(colon == std::string::npos ? 0 : colon + 2));
  }

  const std::string& error() const { return error_; }

 protected:
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json container) {
    if (open_.size() == kTokenizerJsonDepthMax) {
      return fail("is nested more than " + std::to_string(kTokenizerJsonDepthMax) + " deep");
    }
    open_.push_back(place(std::move(container)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  bool fail(std::string what) {
    if (error_.empty()) error_ = std::move(what);
    return false;
  }
  size_t depth() const { return open_.size(); }
  const std::string& current_key() const { return key_; }

 private:
  Json* place(Json value) {
    if (open_.empty()) {
      *document_ = std::move(value);
      return document_;
    }
    Json& top = *open_.back();
    if (top.is_array()) {
      top.push_back(std::move(value));
      return &top.back();
    }
    return &(top[key_] = std::move(value));
  }

  Json* document_;
  std::vector<Json*> open_;
  std::string key_;
  std::string error_;
};

// Takes model.vocab and model.merges out of the document.
class TokenizerHandler : public DocumentBuilder {
 public:
  explicit TokenizerHandler(TokenizerJsonFile* file) : DocumentBuilder(&file->rest), file_(file) {}

  bool null() { return is_document() ? DocumentBuilder::null() : bad_item(); }
  bool boolean(bool value) { return is_document() ? DocumentBuilder::boolean(value) : bad_item(); }
  bool number_integer(number_integer_t value) {
    return is_document() ? DocumentBuilder::number_integer(value) : take_integer(value);
  }
  bool number_unsigned(number_unsigned_t value) {
    if (is_document()) return DocumentBuilder::number_unsigned(value);
    return value > INT64_MAX ? bad_item() : take_integer(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& text) {
    if (is_document()) return DocumentBuilder::number_float(value, text);
    return part_ == Part::kVocabList ? take_score(value) : bad_item();
  }
  bool string(string_t& value) {
    return is_document() ? DocumentBuilder::string(value) : take_string(value);
  }
  bool key(string_t& value) {
    if (is_document()) return DocumentBuilder::key(value);
    token_ = std::move(value);
    return true;
  }

  bool start_object(size_t size) {
    if (!is_document()) return bad_item();
    if (is_model() && current_key() == "vocab") return enter(Part::kVocabObject, &file_->has_vocab);
    if (depth() == 1) in_model_ = current_key() == "model";
    return DocumentBuilder::start_object(size);
  }
  bool end_object() {
    if (is_document()) return DocumentBuilder::end_object();
    part_ = Part::kDocument;
    return true;
  }
  bool start_array(size_t size) {
    if (is_document()) {
      if (is_model() && current_key() == "vocab") return enter(Part::kVocabList, &file_->has_vocab);
      if (is_model() && current_key() == "merges") return enter(Part::kMerges, &file_->has_merges);
      if (depth() == 1) in_model_ = false;
      return DocumentBuilder::start_array(size);
    }
    if (in_item_ || part_ == Part::kVocabObject) return bad_item();
    in_item_ = true;
    taken_ = 0;
    return true;
  }
  bool end_array() {
    if (is_document()) return DocumentBuilder::end_array();
    if (!in_item_) {
      part_ = Part::kDocument;
      return true;
    }
    in_item_ = false;
    return taken_ == 2 || bad_item();
  }

 private:
  enum class Part { kDocument, kVocabObject, kVocabList, kMerges };

  bool is_document() const { return part_ == Part::kDocument; }
  bool is_model() const { return in_model_ && depth() == 2; }
  bool enter(Part part, bool* seen) {
    if (*seen) return fail("has model." + current_key() + " twice");
    *seen = true;
    part_ = part;
    in_item_ = false;
    return true;
  }
  bool bad_item() {
    if (part_ == Part::kMerges) {
      return fail("has a merge, number " + std::to_string(file_->merges.size()) +
                  ", in model.merges that is neither a string nor a list of two");
    }
    const size_t index = file_->ids.size() + file_->scores.size();
    return fail("has an entry, number " + std::to_string(index) + ", in model.vocab that is not " +
                (part_ == Part::kVocabObject ? "a token and its id" : "a token and its score"));
  }

  bool take_integer(int64_t value) {
    if (part_ == Part::kVocabList) return take_score(static_cast<double>(value));
    if (part_ != Part::kVocabObject) return bad_item();
    if (file_->ids.size() == kVocabularyTokensMax) return fail("has too many tokens");
    file_->ids.emplace_back(std::move(token_), value);
    return true;
  }
  bool take_score(double value) {
    if (!in_item_ || taken_ != 1) return bad_item();
    if (file_->scores.size() == kVocabularyTokensMax) return fail("has too many tokens");
    file_->scores.emplace_back(std::move(token_), value);
    taken_ = 2;
    return true;
  }
  bool take_string(string_t& value) {
    if (part_ == Part::kVocabList && in_item_ && taken_ == 0) {
      token_ = std::move(value);
      taken_ = 1;
      return true;
    }
    return part_ == Part::kMerges ? take_merge(value) : bad_item();
  }
  bool take_merge(string_t& value) {
    if (in_item_ && taken_ == 0) {
      token_ = std::move(value);
      taken_ = 1;
      return true;
    }
    if (in_item_ && taken_ == 2) return bad_item();
    if (file_->merges.size() == MergeTable::kMergesMax) return fail("has too many merges");
    const char separator = in_item_ ? '\0' : ' ';
    if (file_->merges.empty()) file_->merge_separator = separator;
    if (file_->merge_separator != separator) return fail("writes merges in two ways");
    if (in_item_) {
      if (token_.find('\0') != std::string::npos) return fail("has a merge with a zero byte");
      token_ += '\0';
      token_ += value;
      file_->merges.push_back(std::move(token_));
      taken_ = 2;
    } else {
      file_->merges.push_back(std::move(value));
    }
    return true;
  }

  TokenizerJsonFile* file_;
  Part part_ = Part::kDocument;
  bool in_model_ = false;
  bool in_item_ = false;  // within a list of two
  int taken_ = 0;         // of that list
  std::string token_;
};

template <class Handler>
Status parse(std::string_view name, std::string_view text, Handler* handler, const Json& document) {
  if (!Json::sax_parse(text, handler)) return damaged(std::string(name) + ": " + handler->error());
  if (!document.is_object()) return damaged(std::string(name) + ": is not a JSON object");
  return ok_status();
}

}  // namespace

Result<TokenizerJsonFile> read_tokenizer_json(std::string_view name, std::string_view text) {
  TokenizerJsonFile file;
  TokenizerHandler handler(&file);
  TRY(parse(name, text, &handler, file.rest));
  return file;
}

Result<nlohmann::json> read_json_object(std::string_view name, std::string_view text) {
  Json document;
  DocumentBuilder handler(&document);
  TRY(parse(name, text, &handler, document));
  return document;
}

}  // namespace kvikk

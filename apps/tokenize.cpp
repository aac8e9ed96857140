// kvikk tokenize: text to tokens and back, one JSON line each. Reads only the vocabulary of the
// file, so files without weights do.

#include <optional>

#include "model_source.h"
#include "models/model_file.h"
#include "text/json_text.h"
#include "text/tokenizer.h"
#include "verbs.h"

namespace kvikk {
namespace {

struct TokenizeOptions {
  std::string in = "-";
  bool decode = false;

  template <class V>
  void visit(V&& v) {
    v(in, "in", 1, 4096, "file of JSON lines; - is standard input");
    v(decode, "decode", false, true, "back from {\"ids\": [...]} to {\"text\": ...}");
  }
};

Result<bool> get_flag(const nlohmann::ordered_json& line, const char* key, bool fallback,
                      const std::string& where) {
  const auto found = line.find(key);
  if (found == line.end()) return fallback;
  if (!found->is_boolean()) return damaged(where + ": '" + key + "' must be true or false");
  return found->get<bool>();
}

Result<nlohmann::ordered_json> encode_line(const Tokenizer& tokenizer,
                                           const nlohmann::ordered_json& line,
                                           const std::string& where) {
  const auto text = line.find("text");
  if (text == line.end() || !text->is_string()) {
    return damaged(where + ": 'text' must be there and a text");
  }
  EncodeOptions options;
  TRY_ASSIGN(options.parse_special, get_flag(line, "special", false, where));
  TRY_ASSIGN(options.add_bos_eos, get_flag(line, "bos_eos", false, where));
  return nlohmann::ordered_json{
      {"ids", tokenizer.encode(text->get_ref<const std::string&>(), options)}};
}

Result<nlohmann::ordered_json> decode_line(const Tokenizer& tokenizer,
                                           const nlohmann::ordered_json& line,
                                           const std::string& where) {
  const auto ids = line.find("ids");
  if (ids == line.end()) return damaged(where + ": 'ids' must be there");
  TRY_ASSIGN(const std::vector<TokenId> tokens, json_numbers(*ids, where + ": 'ids'"));
  for (const TokenId token : tokens) {
    if (static_cast<size_t>(token) < tokenizer.size()) continue;
    return damaged(where + ": token " + std::to_string(token) + " is outside the vocabulary of " +
                   std::to_string(tokenizer.size()));
  }
  TRY_ASSIGN(const bool special, get_flag(line, "special", true, where));
  return nlohmann::ordered_json{{"text", tokenizer.decode(tokens, special)}};
}

// "  9906  Hello", one token a line.
Status show_text(Shell& shell, const Tokenizer& tokenizer, const std::string& text) {
  for (const TokenId token : tokenizer.encode(text, {})) {
    std::string number = std::to_string(token);
    number.insert(0, number.size() < 7 ? 7 - number.size() : 0, ' ');
    const nlohmann::ordered_json piece = std::string(tokenizer.token_bytes(token));
    TRY(shell.print_model_text(number + "  " + json_line(piece)));
  }
  return ok_status();
}

}  // namespace

Status verb_tokenize(Shell& shell, Arguments arguments) {
  ModelOptions model;
  TokenizeOptions options;
  std::vector<std::string> words;
  Command command({"tokenize",
                   "[TEXT]",
                   "Shows the tokens of TEXT, or of a file of JSON lines:\n"
                   "{\"text\": \"..\", \"special\": true|false} -> {\"ids\": [..]}, where special "
                   "says whether\ntext that spells a special token becomes that token.",
                   {"kvikk tokenize \"Hello, world\"",
                    "kvikk tokenize -m qwen2.5-coder-0.5b --in texts.jsonl > ids.jsonl"}});
  command.add(model);
  command.add_short("model", 'm');
  command.add(options);
  command.take_words(words, 0, 1);
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  if (!words.empty() && (command.given("in") || options.decode)) {
    return invalid_argument("give a TEXT or --in FILE; --decode takes a file or standard input");
  }

  TRY_ASSIGN(const std::string path, find_model(shell, model));
  TRY_ASSIGN(const OpenedModel file, OpenedModel::open(path));
  TRY_ASSIGN(const std::optional<Tokenizer> made, file.tokenizer());
  if (!made.has_value()) return unsupported(path + ": has no tokenizer");
  const Tokenizer& tokenizer = *made;
  if (!words.empty()) return show_text(shell, tokenizer, words[0]);

  TRY_ASSIGN(LineReader lines, LineReader::open(shell, options.in));
  std::string text;
  for (;;) {
    TRY_ASSIGN(const bool more, lines.next(text));
    if (!more) return ok_status();
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = lines.where();
    TRY_ASSIGN(const nlohmann::ordered_json line, parse_json_object(text, where));
    TRY_ASSIGN(const nlohmann::ordered_json out, options.decode
                                                     ? decode_line(tokenizer, line, where)
                                                     : encode_line(tokenizer, line, where));
    TRY(shell.print(json_line(out)));
  }
}

}  // namespace kvikk

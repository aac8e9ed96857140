#include "text/option_entry.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "text/utf8.h"

namespace kvikk {
namespace {

constexpr size_t kListEntriesMax = 4096;
constexpr size_t kShownBytesMax = 80;  // of a wrong value, in a message

// One text for each string of a JSON list, or of a single one.
Result<std::vector<std::string>> json_texts(const nlohmann::json& value, const std::string& where) {
  std::vector<std::string> texts;
  const nlohmann::json list = value.is_array() ? value : nlohmann::json::array({value});
  for (const nlohmann::json& item : list) {
    if (!item.is_string()) return invalid_argument(where + " must be a text or a list of texts");
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

Status check_count(size_t count, const std::string& where) {
  if (count <= kListEntriesMax) return ok_status();
  return invalid_argument(where + " has " + std::to_string(count) + " entries; at most " +
                          std::to_string(kListEntriesMax) + " are allowed");
}

}  // namespace

std::string short_text(const std::string& text) {
  if (text.size() <= kShownBytesMax) return text;
  size_t end = kShownBytesMax;
  while (end > 0 && is_utf8_continuation(text[end])) --end;
  return text.substr(0, end) + "...";
}

std::string OptionEntry::flag() const {
  std::string text = "--";
  text += name;
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

OptionEntry OptionBinder::make_entry(const char* name, const char* placeholder, const char* help) {
  OptionEntry entry;
  entry.name = name;
  entry.placeholder = placeholder;
  entry.help = help;
  return entry;
}

std::string OptionBinder::shown(const std::string& text) {
  return text.empty() ? "empty" : short_text(text);
}

void OptionBinder::operator()(std::string& field, const char* name, int min, int max,
                              const char* help) {
  OptionEntry entry = make_entry(name, "TEXT", help);
  entry.fallback = field;
  const auto set = [&field, min, max](const std::string& text, const std::string& where) {
    if (text.size() < static_cast<size_t>(min) || text.size() > static_cast<size_t>(max)) {
      return invalid_argument(where + " has " + std::to_string(text.size()) +
                              " bytes; it must have " + std::to_string(min) + " to " +
                              std::to_string(max));
    }
    field = text;
    return ok_status();
  };
  entry.set_texts = [set](const std::vector<std::string>& texts, const std::string& where) {
    return set(texts.back(), where);
  };
  entry.set_json = [set](const nlohmann::json& value, const std::string& where) {
    if (!value.is_string()) return invalid_argument(where + " must be a text");
    return set(value.get<std::string>(), where);
  };
  entries_.push_back(std::move(entry));
}

void OptionBinder::operator()(std::vector<std::string>& field, const char* name, int min, int max,
                              const char* help) {
  OptionEntry entry = make_entry(name, "TEXT", help);
  entry.range = std::to_string(min) + " to " + std::to_string(max) + " bytes each, repeatable";
  entry.fallback = nlohmann::json(field).dump();
  if (field.empty()) entry.fallback.clear();
  const auto set = [&field, min, max](const std::vector<std::string>& texts,
                                      const std::string& where) {
    TRY(check_count(texts.size(), where));
    for (const std::string& text : texts) {
      if (text.size() >= static_cast<size_t>(min) && text.size() <= static_cast<size_t>(max)) {
        continue;
      }
      return invalid_argument(where + " has a text of " + std::to_string(text.size()) +
                              " bytes; each must have " + std::to_string(min) + " to " +
                              std::to_string(max));
    }
    field = texts;
    return ok_status();
  };
  entry.set_texts = set;
  entry.set_json = [set](const nlohmann::json& value, const std::string& where) {
    TRY_ASSIGN(const std::vector<std::string> texts, json_texts(value, where));
    return set(texts, where);
  };
  entries_.push_back(std::move(entry));
}

void OptionBinder::operator()(std::vector<LogitBias>& field, const char* name, double min,
                              double max, const char* help) {
  OptionEntry entry = make_entry(name, "TOKEN=BIAS", help);
  entry.range = number_text(min) + " to " + number_text(max) + ", repeatable";
  const auto set = [&field, min, max](const std::vector<std::string>& texts,
                                      const std::string& where) {
    TRY(check_count(texts.size(), where));
    std::vector<LogitBias> list;
    for (const std::string& text : texts) {
      const size_t equals = std::min(text.find('='), text.size());
      const auto token = parse_number<TokenId>(std::string_view(text).substr(0, equals));
      const auto bias =
          parse_number<float>(std::string_view(text).substr(std::min(equals + 1, text.size())));
      if (!token || *token < 0 || !bias || !(static_cast<double>(*bias) >= min) ||
          !(static_cast<double>(*bias) <= max)) {
        return invalid_argument(where + " is " + shown(text) +
                                "; it must be TOKEN=BIAS, a token's number and a bias from " +
                                number_text(min) + " to " + number_text(max));
      }
      list.push_back({*token, *bias});
    }
    field = std::move(list);
    return ok_status();
  };
  entry.set_texts = set;
  // {"15043": -100, ...}
  entry.set_json = [set](const nlohmann::json& value, const std::string& where) {
    if (!value.is_object()) {
      return invalid_argument(where + " must be an object, {\"TOKEN\": BIAS}");
    }
    std::vector<std::string> texts;
    for (const auto& [token, bias] : value.items()) texts.push_back(token + "=" + bias.dump());
    return set(texts, where);
  };
  entries_.push_back(std::move(entry));
}

void OptionBinder::operator()(std::vector<int32_t>& field, const char* name, int min, int max,
                              const char* help) {
  OptionEntry entry = make_entry(name, "N,N,...", help);
  entry.range = number_text(min) + " to " + number_text(max) + " each";
  for (const int32_t n : field) {
    entry.fallback += (entry.fallback.empty() ? "" : ",") + number_text(n);
  }
  const auto set = [&field, min, max](const std::string& text, const std::string& where) {
    std::vector<int32_t> list;
    for (size_t at = 0; at <= text.size();) {
      const size_t comma = std::min(text.find(',', at), text.size());
      const auto number = parse_number<int32_t>(std::string_view(text).substr(at, comma - at));
      if (!number || *number < min || *number > max) {
        return invalid_argument(where + " is " + shown(text) + "; it must be whole numbers from " +
                                number_text(min) + " to " + number_text(max) +
                                " with commas between them");
      }
      list.push_back(*number);
      TRY(check_count(list.size(), where));
      at = comma + 1;
    }
    field = std::move(list);
    return ok_status();
  };
  entry.set_texts = [set](const std::vector<std::string>& texts, const std::string& where) {
    return set(texts.back(), where);
  };
  entry.set_json = [set](const nlohmann::json& value, const std::string& where) {
    std::string text = value.dump();
    if (value.is_array() && text.size() > 2) text = text.substr(1, text.size() - 2);
    return set(text, where);
  };
  entries_.push_back(std::move(entry));
}

const OptionEntry* find_option(const std::vector<OptionEntry>& entries, std::string_view name) {
  for (const OptionEntry& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

Status set_option(const std::vector<OptionEntry>& entries, std::string_view name,
                  const std::string& text) {
  std::string key(name);
  std::replace(key.begin(), key.end(), '-', '_');
  const OptionEntry* entry = find_option(entries, key);
  if (entry == nullptr) {
    std::string known;
    for (const OptionEntry& e : entries) known += (known.empty() ? "" : ", ") + e.name;
    return invalid_argument("there is no option '" + key + "'; known are " + known);
  }
  if (entry->placeholder.empty() && text != "true") {
    return invalid_argument(key + " is " + text + "; it can only be true");
  }
  return entry->set_texts({text}, key);
}

}  // namespace kvikk

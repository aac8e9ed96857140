#include "command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>

#include "answer.h"
#include "model_source.h"
#include "serving/server.h"
#include "text/json_text.h"

namespace kvikk {
namespace {

constexpr size_t kConfigBytesMax = size_t{1} << 20;
constexpr size_t kHelpNamesWidth = 25;  // of the column of flags
constexpr size_t kNearestBytesMax = 64;

size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replace = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row[to.size()];
}

// Options that other verbs have may stand in a shared configuration file.
bool is_known_elsewhere(const std::string& name) {
  std::vector<OptionEntry> all;
  SamplingOptions sampling;
  sampling.visit(OptionBinder(all));
  EngineOptions engine;
  engine.visit(OptionBinder(all));
  ModelOptions model;
  model.visit(OptionBinder(all));
  AnswerOptions answer;
  answer.visit(OptionBinder(all));
  ServerOptions server;
  server.visit(OptionBinder(all));
  return find_option(all, name) != nullptr;
}

bool has_argument(Arguments arguments, std::string_view wanted) {
  for (const std::string_view argument : arguments) {
    if (argument == "--") return false;
    if (argument == wanted) return true;
  }
  return false;
}

}  // namespace

std::string nearest(std::string_view text, const std::vector<std::string>& known) {
  std::string best_name;
  if (text.size() > kNearestBytesMax) return best_name;
  // At least one character must be right.
  size_t best = std::min(text.size(), std::max<size_t>(2, text.size() / 3) + 1);
  for (const std::string& name : known) {
    const size_t distance = edit_distance(text, name);
    if (distance < best) {
      best = distance;
      best_name = name;
    }
  }
  return best_name;
}

void Command::mark_common(size_t first, std::initializer_list<std::string_view> common) {
  for (size_t i = first; i < entries_.size(); ++i) {
    entries_[i].common = std::find(common.begin(), common.end(), entries_[i].name) != common.end();
  }
}

bool Command::given(std::string_view name) const {
  return std::find(given_.begin(), given_.end(), name) != given_.end();
}

Result<bool> Command::parse(Shell& shell, Arguments arguments) {
  for (const auto& [flag, all] :
       {std::pair("--help", false), {"-h", false}, {"--help-all", true}}) {
    if (!has_argument(arguments, flag)) continue;
    TRY(shell.print(help(all)));
    return false;
  }
  if (has_argument(arguments, "--help-markdown")) {
    TRY(shell.print(markdown()));
    return false;
  }
  const Status status = parse_flags(arguments);
  if (status.ok()) return true;
  return invalid_argument(status.message() + " ('kvikk " + text_.verb + " --help' says more)");
}

Status Command::apply_config(const std::string& path) {
  TRY_ASSIGN(const std::string text, read_file(path, kConfigBytesMax));
  TRY_ASSIGN(const nlohmann::ordered_json json, parse_json(text, path, JsonComments::kIgnored));
  if (!json.is_object()) {
    return invalid_argument(path + ": must be a JSON object such as {\"threads\": 2}");
  }
  for (const auto& [name, value] : json.items()) {
    const OptionEntry* entry = find_option(entries_, name);
    if (entry == nullptr && is_known_elsewhere(name)) continue;
    if (entry == nullptr) {
      std::vector<std::string> known;
      for (const OptionEntry& e : entries_) known.push_back(e.name);
      const std::string near = nearest(name, known);
      return invalid_argument(path + ": there is no option '" + name + "'" +
                              (near.empty() ? "" : "; did you mean '" + near + "'?"));
    }
    TRY(entry->set_json(value, path + ": " + name));
    given_.push_back(name);
  }
  return ok_status();
}

// What is no option is a word. CLI11 could tell them apart too, but takes a word "[a,b]" apart.
Status Command::take_rest(const std::vector<std::string>& rest) {
  std::vector<std::string> words;
  bool options_end = false;
  for (const std::string& argument : rest) {
    if (!options_end && argument == "--") {
      options_end = true;
    } else if (!options_end && argument.size() > 1 && argument[0] == '-') {
      return unknown_option(argument);
    } else {
      words.push_back(argument);
    }
  }
  if (words.size() > words_max_) {
    return invalid_argument("'" + short_text(words[words_max_]) + "' is one word too many");
  }
  if (words.size() < words_min_) return invalid_argument(text_.words + " is missing");
  if (words_ != nullptr) *words_ = std::move(words);
  return ok_status();
}

Status Command::unknown_option(const std::string& argument) const {
  std::vector<std::string> known = {"--config", "--help", "--help-all"};
  for (const OptionEntry& entry : entries_) known.push_back(entry.flag());
  const std::string near = nearest(argument.substr(0, argument.find('=')), known);
  std::string advice;
  if (!near.empty()) {
    advice = "; did you mean '" + near + "'?";
  } else if (words_max_ > 0) {
    advice = "; a word that begins with - goes after --";
  }
  return invalid_argument("there is no option '" + short_text(argument) + "'" + advice);
}

std::string Command::names_of(const OptionEntry& entry) const {
  for (const Short& s : shorts_) {
    if (s.name == entry.name) return std::string("-") + s.letter + "," + entry.flag();
  }
  return entry.flag();
}

Status Command::parse_flags(Arguments arguments) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::string config;
  CLI::Option* config_option = app.add_option("--config", config)->take_last();
  std::vector<std::vector<std::string>> texts(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].placeholder.empty()) {
      app.add_flag_callback(names_of(entries_[i]), [&texts, i] { texts[i] = {"true"}; })
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    } else {
      app.add_option(names_of(entries_[i]), texts[i])
          ->expected(1)
          ->take_all()
          ->allow_extra_args(false);
    }
  }
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    return invalid_argument(error.what());
  }
  TRY(take_rest(app.remaining()));
  if (config_option->count() > 0) TRY(apply_config(config));
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (texts[i].empty()) continue;
    TRY(entries_[i].set_texts(texts[i], entries_[i].flag()));
    given_.push_back(entries_[i].name);
  }
  return ok_status();
}

std::string Command::help(bool all) const {
  const std::string command = "kvikk " + text_.verb;
  std::string out = "usage: " + command + " [OPTIONS]" +
                    (text_.words.empty() ? "" : " " + text_.words) + "\n\n" + text_.summary +
                    "\n\n";
  size_t hidden = 0;
  for (const OptionEntry& entry : entries_) {
    if (!entry.common && !all) {
      ++hidden;
      continue;
    }
    std::string names = names_of(entry);
    names = (names.starts_with("--") ? "      " : "  ") + names;
    const size_t comma = names.find(',');
    if (comma != std::string::npos) names.insert(comma + 1, " ");
    if (!entry.placeholder.empty()) names += " " + entry.placeholder;
    if (names.size() + 1 > kHelpNamesWidth) {
      names += "  ";
    } else {
      names.resize(kHelpNamesWidth, ' ');
    }
    out += names + entry.help + (entry.fallback.empty() ? "" : " [" + entry.fallback + "]") + "\n";
  }
  out += "      --config FILE.json any of these options, as {\"top_k\": 20}; flags go first\n";
  if (hidden > 0) {
    out += "      --help-all         also the " + std::to_string(hidden) +
           (hidden == 1 ? " rarer option\n" : " rarer options\n");
  }
  out += "\nexamples:\n";
  for (const std::string& example : text_.examples) out += "  " + example + "\n";
  return out;
}

std::string Command::markdown() const {
  std::string out = "## kvikk " + text_.verb + (text_.words.empty() ? "" : " " + text_.words) +
                    "\n\n" + text_.summary + "\n\n";
  for (const std::string& example : text_.examples) out += "    " + example + "\n";
  if (entries_.empty()) return out + "\n";
  out += "\n| flag | JSON key | values | default | meaning |\n|---|---|---|---|---|\n";
  for (const OptionEntry& entry : entries_) {
    std::string names = names_of(entry);
    std::replace(names.begin(), names.end(), ',', ' ');
    const std::string fallback = entry.fallback.empty() ? "" : "`" + entry.fallback + "`";
    out += "| `" + names + (entry.placeholder.empty() ? "" : " " + entry.placeholder) + "` | `" +
           entry.name + "` | " + entry.range + " | " + fallback + " | " + entry.help + " |\n";
  }
  return out + "\n";
}

}  // namespace kvikk

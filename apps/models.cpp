// kvikk models, pull, rm: the catalog and what of it is on this machine.

#include <algorithm>

#include "model_source.h"
#include "models/registry.h"
#include "text/json_text.h"
#include "text/numbers.h"
#include "verbs.h"
#include "weights/fetch.h"

namespace kvikk {
namespace {

using Json = nlohmann::ordered_json;

struct FamiliesOption {
  bool families = false;

  template <class V>
  void visit(V&& v) {
    v(families, "families", false, true, "the families of models that files may be of instead");
  }
};

struct JsonOption {
  bool json = false;

  template <class V>
  void visit(V&& v) {
    v(json, "json", false, true, "one JSON document");
  }
};

Json entry_json(const CatalogEntry& entry, const std::string& directory) {
  const bool fetched = is_fetched(entry, directory);
  Json json = {{"name", entry.name},       {"description", entry.description},
               {"licence", entry.licence}, {"bytes", entry.bytes},
               {"sha256", entry.sha256},   {"fetched", fetched}};
  if (fetched) json["path"] = model_path(entry, directory);
  return json;
}

std::string table(const std::string& directory) {
  std::string text;
  for (const CatalogEntry& entry : catalog()) {
    std::string line(entry.name);
    line.resize(std::max<size_t>(line.size() + 1, 20), ' ');
    line += bytes_text(entry.bytes);
    line.resize(std::max<size_t>(line.size() + 1, 29), ' ');
    line += is_fetched(entry, directory) ? "here" : "-";
    line.resize(std::max<size_t>(line.size() + 1, 34), ' ');
    text += line + std::string(entry.description) + " (" + std::string(entry.licence) + ")\n";
  }
  return text;
}

// The catalog entry of a word, or an error that names the nearest.
Result<const CatalogEntry*> find_entry(const std::string& name) {
  if (const CatalogEntry* entry = find_catalog_entry(name)) return entry;
  std::vector<std::string> known;
  std::string list;
  for (const CatalogEntry& entry : catalog()) {
    known.emplace_back(entry.name);
    list += (list.empty() ? "" : ", ") + known.back();
  }
  const std::string near = nearest(name, known);
  return not_found("there is no model '" + name + "'" +
                   (near.empty() ? "; known" : "; did you mean '" + near + "'? Known") + " are " +
                   list);
}

}  // namespace

Status verb_models(Shell& shell, Arguments arguments) {
  ModelsDirOptions options;
  JsonOption output;
  FamiliesOption what;
  Command command({"models",
                   "",
                   "Lists the models that can be fetched by name, and which are here.",
                   {"kvikk models", "kvikk models --families"}});
  command.add(options, {"models_dir"});
  command.add(what);
  command.add(output);
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();

  if (what.families) return shell.print(families_table());
  const std::string directory = options.directory();
  if (!output.json) return shell.print(table(directory));
  Json list = Json::array();
  for (const CatalogEntry& entry : catalog()) list.push_back(entry_json(entry, directory));
  return shell.print(json_line(list));
}

Status verb_pull(Shell& shell, Arguments arguments) {
  ModelsDirOptions options;
  JsonOption output;
  std::vector<std::string> names;
  Command command({"pull",
                   "NAME...",
                   "Fetches models and prints their paths. What is there already is checked; an "
                   "unfinished\nfetch goes on where it was.",
                   {"kvikk pull qwen2.5-coder-1.5b", "kvikk pull gemma-3-270m --accept-licence"}});
  command.add(options);
  command.add(output);
  command.take_words(names, 1, 64);
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();

  std::vector<const CatalogEntry*> entries;
  for (const std::string& name : names) {
    TRY_ASSIGN(const CatalogEntry* entry, find_entry(name));
    entries.push_back(entry);
  }
  for (const CatalogEntry* entry : entries) {
    TRY_ASSIGN(const std::string path, fetch(shell, *entry, options));
    TRY(shell.print(output.json ? json_line(entry_json(*entry, options.directory()))
                                : path + "\n"));
  }
  return ok_status();
}

Status verb_rm(Shell& shell, Arguments arguments) {
  ModelsDirOptions options;
  std::vector<std::string> names;
  Command command({"rm",
                   "NAME...",
                   "Removes fetched models, and what is left of unfinished fetches.",
                   {"kvikk rm qwen2.5-coder-1.5b", "kvikk rm gemma-3-270m smollm2-135m"}});
  command.add(options, {"models_dir"});
  command.take_words(names, 1, 64);
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();

  for (const std::string& name : names) {
    TRY_ASSIGN(const CatalogEntry* entry, find_entry(name));
    TRY(remove_model(*entry, options.directory()));
    shell.note(name + " was removed, " + bytes_text(entry->bytes));
  }
  return ok_status();
}

}  // namespace kvikk

#include "model_source.h"

#include <poll.h>

#include <chrono>
#include <optional>

#include "drafting/registry.h"
#include "progress.h"
#include "text/numbers.h"
#include "weights/fetch.h"

namespace kvikk {
namespace {

constexpr size_t kReplyBytesMax = 4096;

FetchOptions fetch_options(Shell& shell, const ModelsDirOptions& options, Progress& progress,
                           const std::string& name) {
  FetchOptions fetch;
  fetch.models_dir = options.directory();
  fetch.licence_accepted = options.accept_licence;
  fetch.cancelled = [&shell] { return shell.interrupts().raised(); };
  fetch.progress = [&progress, name](const FetchProgress& now) {
    switch (now.stage) {
      case FetchStage::kWaiting:
        progress.set_label("waiting for another kvikk that fetches " + name);
        break;
      case FetchStage::kChecking:
        progress.set_label("checking " + name);
        break;
      case FetchStage::kDownloading:
        progress.set_label("fetching " + name);
        break;
    }
    progress.show(now.done_bytes, now.total_bytes);
  };
  return fetch;
}

// Asks on the terminal whether the terms are accepted.
Status ask_for_terms(Shell& shell, const CatalogEntry& entry, FetchOptions& options) {
  TRY_ASSIGN(const std::string terms, fetch_terms(entry, options));
  const std::string name(entry.name);
  shell.message(name + " comes under the " + std::string(entry.licence) + "; a copy is in\n  " +
                terms + "\nDo you accept them? [y/N] ");
  std::string reply;
  while (reply.find('\n') == std::string::npos) {
    if (!shell.wait_for_stdin()) return cancelled("stopped");
    TRY_ASSIGN(const std::string part, shell.read_some_stdin());
    if (part.empty() || reply.size() > kReplyBytesMax) break;
    reply += part;
  }
  options.licence_accepted = reply == "y\n" || reply == "Y\n" || reply == "yes\n";
  if (options.licence_accepted) return ok_status();
  return Status(StatusCode::kUnsupported, name + " was not fetched: its terms were not accepted");
}

}  // namespace

Result<std::string> fetch(Shell& shell, const CatalogEntry& entry,
                          const ModelsDirOptions& options) {
  const std::string name(entry.name);
  const bool is_new = !is_fetched(entry, options.directory());
  Result<std::string> path = io_error("");
  {
    Progress progress(shell, "fetching " + name, true);
    FetchOptions fetch = fetch_options(shell, options, progress, name);
    if (!fetch.licence_accepted && licence_pending(entry, fetch.models_dir) &&
        shell.stdin_terminal() && shell.stderr_terminal()) {
      TRY(ask_for_terms(shell, entry, fetch));
    }
    if (is_new && (fetch.licence_accepted || !licence_pending(entry, fetch.models_dir))) {
      shell.note("fetching " + name + ", " + bytes_text(entry.bytes) + ", into " +
                 fetch.models_dir);
    }
    path = fetch_model(entry, fetch);
  }
  if (path.ok() && is_new) shell.note(name + " is there and its checksum is right");
  return path;
}

Result<std::string> find_model(Shell& shell, const ModelOptions& options) {
  const std::string directory = options.dir.directory();
  const CatalogEntry* entry = find_catalog_entry(options.model);
  if (entry != nullptr && !is_fetched(*entry, directory)) return fetch(shell, *entry, options.dir);
  return resolve_model(options.model, directory);
}

Result<bool> has_chat_template(const OpenedModel& file) {
  TRY_ASSIGN(const std::optional<std::string> text, file.chat_template());
  return text.has_value();
}

Status fit_context(int64_t needed, const char* what, EngineOptions& options) {
  if (options.context == 0) options.context = static_cast<int32_t>(needed);
  if (options.context >= needed) return ok_status();
  return invalid_argument("--context is " + std::to_string(options.context) + "; " + what + " " +
                          std::to_string(needed));
}

namespace {

// The engine knows paths, people names of the catalog.
Status find_draft_model(Shell& shell, const ModelOptions& target, EngineOptions& options) {
  TRY_ASSIGN(const SpecChoice spec, parse_spec(options.spec));
  if (spec.model.empty()) return ok_status();
  ModelOptions draft = target;
  draft.model = spec.model;
  TRY_ASSIGN(const std::string path, find_model(shell, draft));
  options.spec = "model:" + path;
  return ok_status();
}

}  // namespace

Result<LoadedEngine> load_engine(Shell& shell, const ModelOptions& model, const std::string& path,
                                 const EngineOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  TRY(validate(options));
  TRY_ASSIGN(ModelFile file, ModelFile::open(path));
  LoadedEngine loaded;
  loaded.path = path;
  EngineOptions complete = options;
  complete.cache_dir = model.dir.directory();
  TRY(find_draft_model(shell, model, complete));
  if (options.kv == kKvAuto) shell.note("choosing a cache; a model is measured the first time");
  Progress progress(shell, "loading " + path.substr(path.rfind('/') + 1), true);
  TRY_ASSIGN(loaded.engine,
             Engine::load(std::move(file), complete, [&progress](const LoadProgress& now) {
               progress.show(now.done_bytes, now.total_bytes);
             }));
  if (!loaded.engine->kv_reason().empty()) {
    shell.note("cache " + loaded.engine->options().kv + ": " + loaded.engine->kv_reason());
  }
  loaded.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  TRY(shell.go_on());
  return loaded;
}

Result<LoadedEngine> load_engine(Shell& shell, const ModelOptions& model,
                                 const EngineOptions& options) {
  TRY(validate(options));
  TRY_ASSIGN(const std::string path, find_model(shell, model));
  return load_engine(shell, model, path, options);
}

Result<std::unique_ptr<Embedder>> load_embedder(Shell& shell, const std::string& path,
                                                const EmbedderOptions& options) {
  TRY_ASSIGN(ModelFile file, ModelFile::open(path));
  std::unique_ptr<Embedder> embedder;
  Progress progress(shell, "loading " + path.substr(path.rfind('/') + 1), true);
  TRY_ASSIGN(embedder,
             Embedder::load(std::move(file), options, [&progress](const LoadProgress& now) {
               progress.show(now.done_bytes, now.total_bytes);
             }));
  TRY(shell.go_on());
  return embedder;
}

}  // namespace kvikk

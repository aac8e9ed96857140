// kvikk serve: models for many users, over HTTP.

#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "machine.h"
#include "model_source.h"
#include "serving/http_server.h"
#include "serving/server.h"
#include "text/numbers.h"
#include "verbs.h"

namespace kvikk {
namespace {

constexpr size_t kKeyFileBytesMax = size_t{8} << 20;
constexpr int kServedAtOnce = 16;  // sequences, where --parallel does not say
constexpr int kDrainPollMs = 20;
constexpr rlim_t kDescriptors = 4096;

// "smollm2-135m", "model" of "/some/model.gguf", "folder" of "/some/folder/".
std::string name_of(std::string model) {
  while (model.size() > 1 && model.ends_with('/')) model.pop_back();
  model = model.substr(model.rfind('/') + 1);
  if (model.ends_with(".gguf")) model.resize(model.size() - 5);
  return model;
}

// Many systems give 1024 descriptors unless a program asks for more.
void ask_for_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kDescriptors) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, kDescriptors);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

struct ServeModels {
  std::vector<std::string> model;  // none: the default one
  ModelsDirOptions dir;

  template <class V>
  void visit(V&& v) {
    v(model, "model", 1, 4096,
      "a model (repeat for more: loaded when asked for); the first is the default");
    dir.visit(v);
  }
};

size_t weight_bytes(const ModelFile& file) {
  size_t bytes = 0;
  for (const StoredTensor& tensor : file.tensors->tensors()) bytes += tensor.bytes.size();
  return bytes;
}

// Finds (or fetches) the model now and loads it when it is wanted.
Result<ServedModel> served_model(Shell& shell, const ModelOptions& model,
                                 const EngineOptions& options) {
  ServedModel served;
  served.name = name_of(model.model);
  served.path = model.model;
  TRY_ASSIGN(const std::string path, find_model(shell, model));
  TRY_ASSIGN(const ModelFile file, ModelFile::open(path));
  TRY(file.check_writes_text());  // not only when somebody asks it for a text
  served.weight_bytes = weight_bytes(file);
  served.open = [&shell, model, options, path,
                 name = served.name](size_t cache_bytes_max) -> Result<std::unique_ptr<Engine>> {
    EngineOptions bounded = options;
    if (cache_bytes_max > 0) {
      const auto mib = static_cast<int32_t>(std::max<size_t>(cache_bytes_max >> 20, 1));
      bounded.kv_memory_mib =
          options.kv_memory_mib > 0 ? std::min(options.kv_memory_mib, mib) : mib;
    }
    TRY_ASSIGN(LoadedEngine loaded, load_engine(shell, model, path, bounded));
    const EngineOptions& used = loaded.engine->options();
    shell.note("loaded " + name + " in " + seconds_text(loaded.load_seconds) + ": " +
               std::to_string(used.parallel) + " requests at a time, context " +
               count_text(loaded.engine->context()) + " tokens, cache " + used.kv);
    return std::move(loaded.engine);
  };
  return served;
}

// Automatic: three quarters of what is free; one model alone takes what its own options say.
size_t memory_bytes_max(const ServerOptions& options, size_t models) {
  if (options.memory_mib > 0) return static_cast<size_t>(options.memory_mib) << 20;
  return models > 1 ? describe_machine().available_bytes / 4 * 3 : 0;
}

// Before a model is loaded for nothing.
Status check_tls(const ServerOptions& options) {
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return invalid_argument("--tls-cert and --tls-key need each other");
  }
  return options.tls_cert.empty() ? ok_status()
                                  : check_tls_files(options.tls_cert, options.tls_key);
}

void wait_for_signal(const Interrupts& interrupts) {
  pollfd wait = {interrupts.event(), POLLIN, 0};
  while (!interrupts.raised()) ::poll(&wait, 1, -1);
}

// Answers what was asked, for a while. A second signal ends the program meanwhile.
void drain(Shell& shell, Server& server, int seconds) {
  shell.note("stopping: no new requests, at most " + std::to_string(seconds) +
             " s for those that run; again to stop at once");
  server.drain();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!server.drained() && std::chrono::steady_clock::now() < end) {
    ::poll(nullptr, 0, kDrainPollMs);
  }
}

}  // namespace

Status verb_serve(Shell& shell, Arguments arguments) {
  ServeModels models;
  ServerOptions options;
  EngineOptions engine_options;
  engine_options.parallel = kServedAtOnce;
  SamplingOptions sampling;
  Command command({"serve",
                   "",
                   "Answers requests over HTTP in the OpenAI and Anthropic APIs, many at once.\n"
                   "Ctrl-C answers what was asked, then ends; twice ends now.",
                   {"kvikk serve -m qwen2.5-coder-1.5b",
                    "kvikk serve --host 0.0.0.0 --api-key-file keys.txt --kv turbo4"}});
  command.add(models, {"model"});
  command.add_short("model", 'm');
  command.add(options, {"host", "port", "api_key_file", "alias", "allow_host", "memory_mib",
                        "keep_alive", "queue"});
  command.add(sampling, {"temperature"});
  command.add(engine_options, {"threads", "context", "parallel", "kv", "kv_memory_mib", "spec"});
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  TRY(validate(engine_options));
  TRY(check_tls(options));

  Server::Setup setup;
  setup.options = options;
  setup.sampling = sampling;
  setup.log = [&shell](std::string_view line) { shell.message(line); };
  setup.note = [&shell](const std::string& text) { shell.note(text); };
  if (!options.api_key_file.empty()) {
    TRY_ASSIGN(setup.api_keys, read_file(options.api_key_file, kKeyFileBytesMax));
  }
  if (models.model.empty()) models.model.push_back(ModelOptions().model);
  for (const std::string& name : models.model) {
    TRY_ASSIGN(ServedModel model, served_model(shell, {name, models.dir}, engine_options));
    setup.models.push_back(std::move(model));
  }
  setup.models.front().names = options.alias;
  setup.memory_bytes_max = memory_bytes_max(options, setup.models.size());

  ask_for_descriptors();
  const StopOnInterrupt stop(shell.interrupts(), Interrupts::Policy::kDrain);
  TRY_ASSIGN(const std::unique_ptr<Server> server, Server::start(std::move(setup)));
  const std::string host = options.host == "0.0.0.0" ? "127.0.0.1" : options.host;
  const std::string scheme = options.tls_cert.empty() ? "http://" : "https://";
  shell.note("listening on " + scheme + host + ":" + std::to_string(server->port()));
  wait_for_signal(shell.interrupts());
  drain(shell, *server, options.drain_seconds);
  shell.interrupts().fulfilled();
  return ok_status();
}

}  // namespace kvikk

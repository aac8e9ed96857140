// kvikk inspect: what a model file holds and what it needs here. Reads the header only.

#include <algorithm>
#include <map>
#include <optional>

#include "engine/chat_prompt.h"
#include "machine.h"
#include "model_source.h"
#include "models/kv_coding.h"
#include "models/registry.h"
#include "models/vocabulary.h"
#include "tensor/dtype.h"
#include "text/json_text.h"
#include "text/numbers.h"
#include "verbs.h"

namespace kvikk {
namespace {

using Json = nlohmann::ordered_json;

// What the program itself takes beside weights and cache.
constexpr uint64_t kOverheadBytes = uint64_t{100} << 20;
constexpr KvFormat kKvFormats[] = {KvFormat::kBF16, KvFormat::kF32};

const char* kv_name(KvFormat format) {
  return kKvNames[static_cast<size_t>(format)].data();  // in the order of KvFormat
}

struct InspectOptions {
  bool tensors = false;
  bool json = false;

  template <class V>
  void visit(V&& v) {
    v(tensors, "tensors", false, true, "list every tensor");
    v(json, "json", false, true, "one JSON document");
  }
};

struct WeightFormat {
  uint64_t tensors = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;
};

// What the model is, as far as it can be told; `problem` says why it does not run.
struct Inspection {
  std::optional<OpenedModel> model;
  std::string architecture;
  std::optional<ModelConfig> config;
  std::string problem;
  std::map<std::string, WeightFormat> formats;
  WeightFormat total;
};

// Everything that loading checks but the bytes of the weights.
Status find_problem(Inspection& inspection) {
  TRY_ASSIGN(const ConfigKeys keys, inspection.model->config_keys());
  inspection.architecture = keys.architecture();
  TRY_ASSIGN(inspection.config, read_model_config(keys));
  if (inspection.model->tensors->tensors().empty()) {
    return unsupported("the file has a vocabulary but no weights");
  }
  return check_weights(*inspection.model->tensors, *inspection.config);
}

Result<Inspection> inspect_file(const std::string& path) {
  Inspection inspection;
  Result<OpenedModel> opened = OpenedModel::open(path);
  const StatusCode code = opened.status().code();
  if (code == StatusCode::kDamaged || code == StatusCode::kUnsupported) {
    inspection.problem = opened.status().message();  // that is what there is to say
    return inspection;
  }
  TRY_ASSIGN(inspection.model, std::move(opened));
  for (const StoredTensor& tensor : inspection.model->tensors->tensors()) {
    WeightFormat& format = inspection.formats[dtype_info(tensor.type).name];
    for (WeightFormat* sum : {&format, &inspection.total}) {
      ++sum->tensors;
      sum->elements += tensor.elements();
      sum->bytes += tensor.bytes.size();
    }
  }
  inspection.problem = find_problem(inspection).message();
  return inspection;
}

// The longest context whose cache fits beside the weights, at most what the model was trained for.
size_t context_that_fits(const KvShape& shape, const Inspection& inspection,
                         const Machine& machine) {
  const uint64_t taken = inspection.total.bytes + kOverheadBytes;
  if (machine.available_bytes <= taken) return 0;
  const uint64_t room = machine.available_bytes - taken;
  size_t low = 0;
  size_t high = inspection.config->context;
  while (low < high) {  // sequence_bytes grows with the tokens
    const size_t middle = low + (high - low + 1) / 2;
    if (shape.sequence_bytes(middle) <= room) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

Json cache_json(const Inspection& inspection, const Machine& machine) {
  Json caches = Json::object();
  const auto describe = [&](const std::string& name, const KvShape& shape) {
    caches[name] = {{"kv_bytes_per_token", shape.bytes_per_token()},
                    {"full_context_bytes", shape.sequence_bytes(inspection.config->context)},
                    {"context_that_fits", context_that_fits(shape, inspection, machine)}};
  };
  for (const KvFormat format : kKvFormats) {
    describe(kv_name(format), Model::kv_shape(*inspection.config, format));
  }
  for (const KvCodec* codec : kv_codecs()) {
    KvChoice choice;
    choice.keys = choice.values = codec;
    const auto coder = make_kv_coder(*inspection.config, choice, 0);
    if (!coder.ok()) continue;  // it does not fit this model
    describe(choice.name(), Model::kv_shape(*inspection.config, choice.exact, *coder));
  }
  return caches;
}

Json token_json(const Tokenizer& tokenizer, std::optional<TokenId> token) {
  if (!token.has_value()) return nullptr;
  return {{"id", *token}, {"text", std::string(tokenizer.token_bytes(*token))}};
}

// Of a GGUF file's vocabulary also what it says of itself, into `json`.
Result<std::optional<Tokenizer>> read_tokenizer(const OpenedModel& model, Json& json) {
  if (model.gguf == nullptr || !model.gguf->has("tokenizer.ggml.model")) return model.tokenizer();
  TRY_ASSIGN(VocabularyData data, read_vocabulary(*model.gguf));
  json = {{"model", data.model},
          {"pre", data.pre},
          {"tokens", data.tokens.size()},
          {"merges", data.merges.size()}};
  TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::create(std::move(data)));
  return std::optional<Tokenizer>(std::move(tokenizer));
}

Json tokenizer_json(const OpenedModel& model) {
  Json json = Json::object();
  const Result<std::optional<Tokenizer>> tokenizer = read_tokenizer(model, json);
  if (tokenizer.ok() && !tokenizer->has_value()) return nullptr;
  if (!tokenizer.ok()) {
    json["error"] = tokenizer.status().message();
    return json;
  }
  const Tokenizer& t = **tokenizer;
  json["tokens"] = t.size();
  json["bos"] = token_json(t, t.bos());
  json["eos"] = token_json(t, t.eos());
  json["eot"] = token_json(t, t.eot());
  json["adds_bos"] = t.adds_bos();
  json["adds_eos"] = t.adds_eos();
  return json;
}

Json template_json(const OpenedModel& model) {
  const auto text = model.chat_template();
  if (!text.ok()) return {{"error", text.status().message()}};
  if (!text->has_value()) return nullptr;
  Json json = {{"bytes", (*text)->size()}, {"text", **text}};
  const Result<Template> parsed = Template::parse(**text);
  if (!parsed.ok()) json["error"] = parsed.status().message();
  return json;
}

Json config_json(const ModelConfig& config) {
  return {{"vocabulary", config.vocabulary},
          {"hidden", config.hidden},
          {"layers", config.layers},
          {"heads", config.heads},
          {"kv_heads", config.kv_heads},
          {"head_dim", config.head_dim},
          {"feed_forward", config.feed_forward},
          {"context", config.context},
          {"sliding_window", config.window},
          {"sliding_layers", std::count_if(config.layer.begin(), config.layer.end(),
                                           [](const LayerConfig& layer) { return layer.sliding; })},
          {"rope_base", config.rope.base}};
}

Json inspection_json(const Inspection& inspection, const std::string& path, bool tensors) {
  if (!inspection.model.has_value()) {
    return {{"path", path}, {"runs", false}, {"problem", inspection.problem}};
  }
  const OpenedModel& model = *inspection.model;
  const Machine machine = describe_machine();
  Json json = {{"path", model.path},
               {"format", model.gguf != nullptr ? "gguf" : "safetensors"},
               {"files", std::max<size_t>(model.tensors->file_count(), 1)},
               {"architecture", inspection.architecture},
               {"runs", inspection.problem.empty()}};
  if (model.gguf != nullptr) json["gguf_version"] = model.gguf->version();
  if (!inspection.problem.empty()) json["problem"] = inspection.problem;
  if (model.gguf != nullptr) {
    if (const auto name = model.gguf->get_string("general.name"); name.ok()) json["name"] = *name;
  }
  if (inspection.config.has_value()) json["shape"] = config_json(*inspection.config);
  json["parameters"] = inspection.total.elements;
  json["weight_bytes"] = inspection.total.bytes;
  for (const auto& [name, format] : inspection.formats) {
    json["weight_formats"][name] = {
        {"tensors", format.tensors}, {"parameters", format.elements}, {"bytes", format.bytes}};
  }
  json["tokenizer"] = tokenizer_json(model);
  json["chat_template"] = template_json(model);
  if (inspection.config.has_value()) {
    json["encoder"] = inspection.config->encoder;  // then nothing is cached from step to step
    if (!inspection.config->encoder) json["kv"] = cache_json(inspection, machine);
  }
  json["machine"] = {{"memory_bytes", machine.memory_bytes},
                     {"available_bytes", machine.available_bytes},
                     {"cores", machine.cores},
                     {"cpu_level", machine.cpu_level}};
  if (!tensors) return json;
  for (const StoredTensor& tensor : model.tensors->tensors()) {
    json["tensors"].push_back({{"name", tensor.name},
                               {"type", dtype_info(tensor.type).name},
                               {"shape", tensor.shape},
                               {"bytes", tensor.bytes.size()}});
  }
  return json;
}

// --- for people ---

std::string line(std::string name, const std::string& value) {
  name.resize(std::max<size_t>(name.size() + 1, 16), ' ');
  return name + value + "\n";
}

std::string count_of(const Json& json) { return count_text(json.get<uint64_t>()); }

std::string shape_text(const Json& s) {
  std::string text = line("layers", count_of(s["layers"]) + ", hidden " + count_of(s["hidden"]) +
                                        ", feed-forward " + count_of(s["feed_forward"]));
  text += line("attention", count_of(s["heads"]) + " heads of " + count_of(s["head_dim"]) +
                                " over " + count_of(s["kv_heads"]) + " key-value heads" +
                                (s["sliding_layers"] == 0
                                     ? ""
                                     : ", " + count_of(s["sliding_layers"]) + " layers see " +
                                           count_of(s["sliding_window"]) + " tokens"));
  return text + line("context", count_of(s["context"]) + " tokens, as trained") +
         line("vocabulary", count_of(s["vocabulary"]) + " tokens");
}

std::string tokenizer_text(const Json& t) {
  if (t.is_null()) return line("tokenizer", "none: the model runs on token ids");
  if (t.contains("error"))
    return line("tokenizer", "cannot be used: " + t["error"].get<std::string>());
  std::string text = count_of(t["tokens"]) + " tokens";
  if (t.contains("model")) {
    text = t["model"].get<std::string>() + " " + t["pre"].get<std::string>() + ", " + text;
  }
  for (const char* kind : {"bos", "eos"}) {
    if (!t[kind].is_null())
      text += std::string(", ") + kind + " " + t[kind]["text"].get<std::string>();
  }
  return line("tokenizer", text + (t["adds_bos"] ? ", begins with bos" : ""));
}

std::string template_text(const Json& t, bool encoder) {
  if (t.is_null()) {
    return line("chat template", encoder ? "none: an encoder, for 'kvikk embed'"
                                         : "none: a base model, it continues text");
  }
  if (t.contains("error"))
    return line("chat template", "cannot be used: " + t["error"].get<std::string>());
  return line("chat template", count_of(t["bytes"]) + " bytes");
}

std::string cache_text(const Json& caches, uint64_t context) {
  std::string text;
  for (const auto& [name, kv] : caches.items()) {
    const uint64_t fits = kv["context_that_fits"];
    text +=
        line("cache " + name,
             count_of(kv["kv_bytes_per_token"]) + " bytes a token, " +
                 bytes_text(kv["full_context_bytes"]) + " for " + count_text(context) + "; " +
                 (fits >= context ? "all of it fits here" : count_text(fits) + " tokens fit here"));
  }
  return text;
}

std::string inspection_text(const Json& json) {
  std::string text = line("file", json["path"].get<std::string>());
  if (!json.contains("architecture")) {
    return text + line("runs here", "no: " + json["problem"].get<std::string>());
  }
  text += line("model", json.value("name", "") + " (architecture " +
                            json["architecture"].get<std::string>() + ")");
  text +=
      line("parameters", count_of(json["parameters"]) + " in " + bytes_text(json["weight_bytes"]));
  if (json.contains("weight_formats")) {
    for (const auto& [name, format] : json["weight_formats"].items()) {
      text += line("  " + name,
                   count_of(format["tensors"]) + " tensors, " + bytes_text(format["bytes"]));
    }
  }
  if (json.contains("shape")) text += shape_text(json["shape"]);
  text += tokenizer_text(json["tokenizer"]) +
          template_text(json["chat_template"], json.value("encoder", false));
  if (json.contains("kv")) text += cache_text(json["kv"], json["shape"]["context"]);
  const Json& machine = json["machine"];
  text += line("this machine", bytes_text(machine["available_bytes"]) + " of " +
                                   bytes_text(machine["memory_bytes"]) + " free, " +
                                   count_of(machine["cores"]) + " cores, " +
                                   machine["cpu_level"].get<std::string>());
  text += line("runs here", json["runs"] ? "yes" : "no: " + json["problem"].get<std::string>());
  if (!json.contains("tensors")) return text;
  for (const Json& tensor : json["tensors"]) {
    text += line("  " + tensor["type"].get<std::string>(),
                 tensor["name"].get<std::string>() + " " + tensor["shape"].dump());
  }
  return text;
}

}  // namespace

Status verb_inspect(Shell& shell, Arguments arguments) {
  ModelOptions model;
  InspectOptions options;
  std::vector<std::string> words;
  Command command({"inspect",
                   "[MODEL]",
                   "Shows what a model file holds, what its cache takes, what context fits in this "
                   "machine's\nmemory, and whether it runs. Loads no weights.",
                   {"kvikk inspect smollm2-135m", "kvikk inspect model.gguf --json"}});
  command.add(model, {"model"});
  command.add_short("model", 'm');
  command.add(options);
  command.take_words(words, 0, 1);
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  if (!words.empty() && command.given("model") && words[0] != model.model) {
    return invalid_argument("two models: '" + model.model + "' and '" + words[0] + "'");
  }
  if (!words.empty()) model.model = words[0];

  TRY_ASSIGN(const std::string path, find_model(shell, model));
  TRY_ASSIGN(const Inspection inspection, inspect_file(path));
  const Json json = inspection_json(inspection, path, options.tensors);
  return options.json ? shell.print(json_line(json))
                      : shell.print_model_text(inspection_text(json));
}

}  // namespace kvikk

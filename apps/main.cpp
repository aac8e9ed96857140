// kvikk VERB ...: finds the verb, runs it, turns its Status into a message and an exit code:
// 0 done, 1 it could not be done, 2 wrong use, 130 stopped by Ctrl-C.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvikk_commit.h"
#include "text/option_entry.h"
#include "verbs.h"

namespace kvikk {
namespace {

struct Verb {
  const char* name;
  const char* part;  // second word, or empty
  Status (*run)(Shell& shell, Arguments arguments);
  const char* summary;
};

constexpr std::array<Verb, 23> kVerbs = {{
    {"chat", "", verb_chat, "talk with a model in the terminal"},
    {"run", "", verb_run, "one answer on standard output"},
    {"serve", "", verb_serve, "answer many users at once over HTTP"},
    {"models", "", verb_models, "the models that can be fetched by name"},
    {"pull", "", verb_pull, "fetch a model"},
    {"rm", "", verb_rm, "remove a fetched model"},
    {"inspect", "", verb_inspect, "what a model file holds and what it needs"},
    {"bench", "serve", verb_bench_serve, "measure a server under load"},
    {"bench", "", verb_bench, "measure speed: prefill, decode, depth, rows"},
    {"eval", "logits", verb_eval_logits, "raw logits of a list of tokens"},
    {"eval", "batch", verb_eval_batch, "answer many requests from a file"},
    {"eval", "ppl", verb_eval_ppl, "perplexity of a text"},
    {"eval", "kl", verb_eval_kl, "distance between two ways of running a model"},
    {"eval", "needle", verb_eval_needle, "what is found in a long text"},
    {"eval", "kv", verb_eval_kv, "every cache in one table: bytes, truth, speed"},
    {"embed", "", verb_embed, "texts to vectors"},
    {"tokenize", "", verb_tokenize, "text to tokens and back"},
    {"template", "", verb_template, "a conversation as the model sees it"},
    {"search", "build", verb_search_build, "an index of vectors"},
    {"search", "add", verb_search_add, "change an index"},
    {"search", "query", verb_search_query, "find the nearest vectors"},
    {"search", "info", verb_search_info, "what an index holds"},
    {"search", "bench", verb_search_bench, "measure an index"},
}};

constexpr char kVersion[] = "kvikk " KVIKK_VERSION " (" KVIKK_COMMIT ")\n";

std::string full_name(const Verb& verb) {
  return std::string(verb.name) + (verb.part[0] == '\0' ? "" : " ") + verb.part;
}

constexpr char kCommandsPreamble[] =
    "# Commands and options\n\nMade by `kvikk --help-markdown`.\n\n"
    "Standard output carries the result and nothing else; progress, notes and errors go to "
    "standard "
    "error.\n\n"
    "| exit code | meaning |\n|---|---|\n"
    "| 0 | done |\n"
    "| 1 | it could not be done; `kvikk: error:` says why. Silent if nobody reads standard output "
    "any more (`kvikk run .. \\| head -1`) |\n"
    "| 2 | wrong use |\n"
    "| 130, 143, 129 | stopped by Ctrl-C, by SIGTERM, by the end of its terminal; what was there "
    "until then is printed |\n\n"
    "Each option is a flag and a key of the JSON file that `--config` names; flags go first. A "
    "file "
    "may hold options\nof the model, the engine, sampling and answers that the verb does not have, "
    "so that several verbs\ncan share one, and comments.\n\n";

// Of all verbs, or of those that begin with `name`.
std::string overview(std::string_view only = {}) {
  std::string text =
      "kvikk runs language models on the processor of this machine.\n\n"
      "usage: kvikk VERB [OPTIONS]\n\n";
  for (const Verb& verb : kVerbs) {
    if (!only.empty() && only != verb.name) continue;
    std::string name = full_name(verb);
    name.resize(14, ' ');
    text += "  " + name + verb.summary + "\n";
  }
  return text +
         "\n'kvikk VERB --help' says more about one; 'kvikk --version' names the build.\n\n"
         "examples:\n"
         "  kvikk chat\n"
         "  cat x.py | kvikk run \"explain\"\n";
}

Status unknown_verb(const std::string& name) {
  std::vector<std::string> known;
  std::string list;
  for (const Verb& verb : kVerbs) {
    if (std::find(known.begin(), known.end(), verb.name) != known.end()) continue;
    known.push_back(verb.name);
    list += (list.empty() ? "" : ", ") + std::string(verb.name);
  }
  const std::string near = nearest(name, known);
  return invalid_argument("there is no verb '" + short_text(name) + "'" +
                          (near.empty() ? "" : "; did you mean '" + near + "'?") +
                          "\nVerbs: " + list);
}

// The verb that the first words name, and how many words that is.
Result<std::pair<const Verb*, size_t>> find_verb(Arguments arguments) {
  const std::string name = arguments[0];
  std::string parts;
  std::vector<std::string> known;
  for (const Verb& verb : kVerbs) {
    if (name != verb.name) continue;
    if (verb.part[0] == '\0') return std::pair(&verb, size_t{1});
    if (arguments.size() > 1 && std::string_view(arguments[1]) == verb.part) {
      return std::pair(&verb, size_t{2});
    }
    known.emplace_back(verb.part);
    parts += (parts.empty() ? "" : ", ") + known.back();
  }
  if (parts.empty()) return unknown_verb(name);
  if (arguments.size() == 1) return invalid_argument("'" + name + "' needs one of " + parts);
  const std::string given = arguments[1];
  const std::string near = nearest(given, known);
  return invalid_argument("'" + name + "' is followed by one of " + parts + ", not by '" +
                          short_text(given) + "'" +
                          (near.empty() ? "" : "; did you mean '" + near + "'?"));
}

Status print_markdown(Shell& shell) {
  TRY(shell.print(kCommandsPreamble));
  const char* const argument = "--help-markdown";
  for (const Verb& verb : kVerbs) TRY(verb.run(shell, {&argument, 1}));
  return ok_status();
}

bool is_help(std::string_view word) { return word == "--help" || word == "-h" || word == "help"; }

Status run_program(Shell& shell, Arguments arguments) {
  if (arguments.empty()) {
    shell.message(overview());
    return invalid_argument("a verb is missing");
  }
  const std::string_view first = arguments[0];
  if (is_help(first)) {
    if (first != "help" || arguments.size() == 1) return shell.print(overview());
    std::vector<const char*> words(arguments.begin() + 1, arguments.end());
    words.push_back("--help");
    return run_program(shell, words);
  }
  if (first == "--version" || first == "-V") return shell.print(kVersion);
  if (first == "--help-markdown") return print_markdown(shell);
  if ((first == "eval" || first == "search") && arguments.size() > 1 && is_help(arguments[1])) {
    return shell.print(overview(first));
  }
  TRY_ASSIGN(const auto verb, find_verb(arguments));
  return verb.first->run(shell, arguments.subspan(verb.second));
}

Status run_guarded(Shell& shell, Arguments arguments) {
  try {
    return run_program(shell, arguments);
  } catch (const std::bad_alloc&) {
    return exhausted("out of memory");
  } catch (const std::exception& error) {
    return io_error(std::string("unexpected: ") + error.what());
  }
}

int finish(Shell& shell, const Status& status) {
  if (shell.interrupts().raised() && (status.ok() || status.code() == StatusCode::kCancelled)) {
    return shell.interrupts().exit_code();
  }
  if (status.ok()) return 0;
  if (!is_closed_output(status))
    shell.message("kvikk: error: " + printable(status.message()) + "\n");
  return status.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

// A model file is read through a mapping. If somebody truncates it meanwhile, the read itself fails
// and there is nothing to return to.
void on_bus_error(int) {
  constexpr char kText[] =
      "kvikk: error: a model file was truncated while it was in use, or its disk failed\n";
  static_cast<void>(!::write(STDERR_FILENO, kText, sizeof kText - 1));
  ::_exit(1);
}

}  // namespace
}  // namespace kvikk

int main(int argc, char** argv) {
  std::signal(SIGBUS, kvikk::on_bus_error);
  try {
    kvikk::Shell shell;
    const kvikk::Arguments arguments(argv + (argc > 0 ? 1 : 0),
                                     static_cast<size_t>(argc > 0 ? argc - 1 : 0));
    return kvikk::finish(shell, kvikk::run_guarded(shell, arguments));
  } catch (const std::exception& error) {  // the system gives no thread, no descriptor
    std::fprintf(stderr, "kvikk: error: cannot start: %s\n", error.what());
    return 1;
  }
}

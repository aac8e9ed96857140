#pragma once
// The verbs of the command line; each has its own file. The table is in main.cpp.

#include "base/status.h"
#include "command.h"
#include "shell.h"

namespace kvikk {

Status verb_chat(Shell& shell, Arguments arguments);
Status verb_run(Shell& shell, Arguments arguments);
Status verb_serve(Shell& shell, Arguments arguments);
Status verb_models(Shell& shell, Arguments arguments);
Status verb_pull(Shell& shell, Arguments arguments);
Status verb_rm(Shell& shell, Arguments arguments);
Status verb_inspect(Shell& shell, Arguments arguments);
Status verb_bench(Shell& shell, Arguments arguments);
Status verb_bench_serve(Shell& shell, Arguments arguments);
Status verb_eval_logits(Shell& shell, Arguments arguments);
Status verb_eval_batch(Shell& shell, Arguments arguments);
Status verb_eval_ppl(Shell& shell, Arguments arguments);
Status verb_eval_kl(Shell& shell, Arguments arguments);
Status verb_eval_needle(Shell& shell, Arguments arguments);
Status verb_eval_kv(Shell& shell, Arguments arguments);
Status verb_embed(Shell& shell, Arguments arguments);
Status verb_tokenize(Shell& shell, Arguments arguments);
Status verb_search_build(Shell& shell, Arguments arguments);
Status verb_search_add(Shell& shell, Arguments arguments);
Status verb_search_query(Shell& shell, Arguments arguments);
Status verb_search_info(Shell& shell, Arguments arguments);
Status verb_search_bench(Shell& shell, Arguments arguments);
Status verb_template(Shell& shell, Arguments arguments);

}  // namespace kvikk

#pragma once
// The engine (kvikk/engine.h) for this program's own layers, which see what it is made of: one
// loaded model, its cache, its scheduler. Commands and the server use the same calls.

#include "base/status.h"
#include "engine/scheduler.h"
#include "kvikk/engine.h"
#include "models/model.h"
#include "models/model_file.h"
#include "text/template.h"
#include "text/tokenizer.h"

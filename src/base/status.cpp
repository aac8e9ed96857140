// How a misused Result ends the program. Out of line, so that the public header needs no CHECK.

#include "base/status.h"

namespace kvikk {

void result_misused(const Status& status) {
  const std::string fact = "a Result is used as what it is; it holds: " +
                           (status.ok() ? std::string("no failure") : status.message());
  check_failed(fact.c_str(), __FILE__, __LINE__);
}

}  // namespace kvikk

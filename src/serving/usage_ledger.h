#pragma once
// What each key has used, in a SQLite file that outlives the server.
//
// A thread of its own writes, so no client waits for a disk. What was added is in the file, as far
// as the system knows, within a moment; a server that is killed loses that moment at most, and the
// file stays whole.

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"

namespace kvikk {

struct UsageKey {
  std::string key;    // its name; empty where there are no keys
  std::string model;  // its name
  std::string day;    // "2026-01-31", UTC
  auto operator<=>(const UsageKey&) const = default;
};

struct UsageCounts {
  int64_t requests = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompts, found in the prefix cache
  int64_t completion_tokens = 0;

  UsageCounts& operator+=(const UsageCounts& more);
  bool operator==(const UsageCounts&) const = default;
};

struct UsageRow {
  UsageKey key;
  UsageCounts counts;
};

class UsageLedger {
 public:
  static constexpr size_t kUnwrittenMax = 100000;  // keys, models and days that wait for the disk

  // Opens the file or makes it. Errors: kIo, kDamaged (it is something else).
  static Result<std::unique_ptr<UsageLedger>> open(const std::string& path);
  // Writes what is left.
  ~UsageLedger();
  UsageLedger(const UsageLedger&) = delete;
  UsageLedger& operator=(const UsageLedger&) = delete;

  // From any thread; never waits for the disk. False: it fails, kUnwrittenMax wait already, and
  // this was not counted.
  bool add(const UsageKey& key, const UsageCounts& counts);
  // Of one key, by model and day; with what is not written yet. From any thread but not often: it
  // reads the file. Errors: kIo.
  Result<std::vector<UsageRow>> read(const std::string& key);
  // Why it could not be written the last time; empty: it could.
  std::string failure() const;

 private:
  class Database;
  explicit UsageLedger(std::unique_ptr<Database> database);
  bool write();
  Status write_rows(const std::map<UsageKey, UsageCounts>& rows);
  void run();

  std::unique_ptr<Database> database_;  // under file_mutex_
  std::mutex file_mutex_;               // taken before mutex_
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<UsageKey, UsageCounts> unwritten_;
  std::string failure_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses all the others
};

// "2026-01-31" of now, UTC.
std::string usage_day();

}  // namespace kvikk

#include "serving/usage_ledger.h"

#include <sqlite3.h>

#include <chrono>
#include <ctime>
#include <utility>

namespace kvikk {
namespace {

// After a failure, such as a full disk, before it is tried again.
constexpr auto kRetryPause = std::chrono::seconds(1);
// Another program that reads the file may hold it for so long.
constexpr int kBusyMs = 5000;

constexpr char kSchema[] =
    "CREATE TABLE IF NOT EXISTS usage ("
    "key TEXT NOT NULL, model TEXT NOT NULL, day TEXT NOT NULL, requests INTEGER NOT NULL, "
    "prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL, "
    "completion_tokens INTEGER NOT NULL, PRIMARY KEY (key, model, day)) WITHOUT ROWID";
constexpr char kAdd[] =
    "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
    "requests = requests + excluded.requests, "
    "prompt_tokens = prompt_tokens + excluded.prompt_tokens, "
    "cached_tokens = cached_tokens + excluded.cached_tokens, "
    "completion_tokens = completion_tokens + excluded.completion_tokens";
constexpr char kRead[] =
    "SELECT model, day, requests, prompt_tokens, cached_tokens, completion_tokens FROM usage "
    "WHERE key = ? ORDER BY model, day";

using Statement = std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)>;

}  // namespace

class UsageLedger::Database {
 public:
  static Result<std::unique_ptr<Database>> open(const std::string& path) {
    std::unique_ptr<Database> database(new Database(path));
    // Serialized: two threads use it, though never at once.
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX;
    if (sqlite3_open_v2(path.c_str(), &database->handle_, flags, nullptr) != SQLITE_OK) {
      return io_error(database->message());
    }
    sqlite3_busy_timeout(database->handle_, kBusyMs);
    // WAL: readers hold nobody up, and what is committed survives the end of this process. That of
    // the system may take the last moments, never the file.
    for (const char* sql : {"PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL", kSchema}) {
      TRY(database->execute(sql));
    }
    TRY(database->prepare(kAdd).status());
    TRY(database->check());
    return database;
  }
  ~Database() { sqlite3_close(handle_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  const std::string& path() const { return path_; }
  // Somebody removed or replaced the file: what is written now, nobody will find.
  bool is_gone() const {
    int gone = 0;
    return sqlite3_file_control(handle_, "main", SQLITE_FCNTL_HAS_MOVED, &gone) == SQLITE_OK &&
           gone != 0;
  }

  // All or nothing.
  Status write(const std::map<UsageKey, UsageCounts>& rows) {
    TRY(execute("BEGIN IMMEDIATE"));
    Status status = write_rows(rows);
    if (status.ok()) status = execute("COMMIT");
    if (!status.ok()) static_cast<void>(execute("ROLLBACK"));
    return status;
  }

  Result<std::vector<UsageRow>> read(const std::string& key) {
    TRY_ASSIGN(const Statement statement, prepare(kRead));
    bind(*statement, 1, key);
    std::vector<UsageRow> rows;
    int result = SQLITE_ROW;
    while ((result = sqlite3_step(statement.get())) == SQLITE_ROW) {
      UsageRow row;
      row.key = {key, text(*statement, 0), text(*statement, 1)};
      row.counts = {
          sqlite3_column_int64(statement.get(), 2), sqlite3_column_int64(statement.get(), 3),
          sqlite3_column_int64(statement.get(), 4), sqlite3_column_int64(statement.get(), 5)};
      rows.push_back(std::move(row));
    }
    if (result != SQLITE_DONE) return io_error(message());
    return rows;
  }

 private:
  explicit Database(std::string path) : path_(std::move(path)) {}

  std::string message() const { return path_ + ": " + sqlite3_errmsg(handle_); }

  Status execute(const char* sql) {
    const int result = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
    if (result == SQLITE_OK) return ok_status();
    return result == SQLITE_NOTADB ? damaged(message()) : io_error(message());
  }

  Result<Statement> prepare(const char* sql) {
    sqlite3_stmt* made = nullptr;
    if (sqlite3_prepare_v2(handle_, sql, -1, &made, nullptr) != SQLITE_OK) {
      return damaged(message() + "; it is no ledger of this program");
    }
    return Statement(made, sqlite3_finalize);
  }

  Status check() {
    TRY_ASSIGN(const Statement statement, prepare("PRAGMA quick_check(1)"));
    if (sqlite3_step(statement.get()) != SQLITE_ROW) return damaged(message());
    const std::string said = text(*statement, 0);
    return said == "ok" ? ok_status() : damaged(path_ + ": is damaged: " + said);
  }

  static void bind(sqlite3_stmt& statement, int index, const std::string& value) {
    sqlite3_bind_text(&statement, index, value.data(), static_cast<int>(value.size()),
                      SQLITE_TRANSIENT);
  }
  static std::string text(sqlite3_stmt& statement, int column) {
    const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(&statement, column));
    return bytes == nullptr ? std::string() : std::string(bytes);
  }

  Status write_rows(const std::map<UsageKey, UsageCounts>& rows) {
    TRY_ASSIGN(const Statement statement, prepare(kAdd));
    for (const auto& [key, counts] : rows) {
      bind(*statement, 1, key.key);
      bind(*statement, 2, key.model);
      bind(*statement, 3, key.day);
      sqlite3_bind_int64(statement.get(), 4, counts.requests);
      sqlite3_bind_int64(statement.get(), 5, counts.prompt_tokens);
      sqlite3_bind_int64(statement.get(), 6, counts.cached_tokens);
      sqlite3_bind_int64(statement.get(), 7, counts.completion_tokens);
      const bool written = sqlite3_step(statement.get()) == SQLITE_DONE;
      sqlite3_reset(statement.get());
      if (!written) return io_error(message());
    }
    return ok_status();
  }

  std::string path_;
  sqlite3* handle_ = nullptr;
};

UsageCounts& UsageCounts::operator+=(const UsageCounts& more) {
  requests += more.requests;
  prompt_tokens += more.prompt_tokens;
  cached_tokens += more.cached_tokens;
  completion_tokens += more.completion_tokens;
  return *this;
}

UsageLedger::UsageLedger(std::unique_ptr<Database> database) : database_(std::move(database)) {
  thread_ = std::thread([this] { run(); });
}

UsageLedger::~UsageLedger() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

Result<std::unique_ptr<UsageLedger>> UsageLedger::open(const std::string& path) {
  TRY_ASSIGN(std::unique_ptr<Database> database, Database::open(path));
  return std::unique_ptr<UsageLedger>(new UsageLedger(std::move(database)));
}

bool UsageLedger::add(const UsageKey& key, const UsageCounts& counts) {
  {
    std::lock_guard lock(mutex_);
    if (unwritten_.size() >= kUnwrittenMax && unwritten_.count(key) == 0) return false;
    unwritten_[key] += counts;
  }
  wake_.notify_one();
  return true;
}

Result<std::vector<UsageRow>> UsageLedger::read(const std::string& key) {
  std::lock_guard file(file_mutex_);
  TRY_ASSIGN(std::vector<UsageRow> rows, database_->read(key));
  std::map<UsageKey, UsageCounts> all;
  for (const UsageRow& row : rows) all[row.key] += row.counts;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, counts] : unwritten_) {
      if (name.key == key) all[name] += counts;
    }
  }
  rows.clear();
  for (const auto& [name, counts] : all) rows.push_back({name, counts});
  return rows;
}

std::string UsageLedger::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

// To the file of that name, a new one where the old one is gone.
Status UsageLedger::write_rows(const std::map<UsageKey, UsageCounts>& rows) {
  if (database_->is_gone()) {
    TRY_ASSIGN(database_, Database::open(database_->path()));
  }
  return database_->write(rows);
}

// Writes what waits. After a failure it waits again.
bool UsageLedger::write() {
  std::lock_guard file(file_mutex_);
  std::map<UsageKey, UsageCounts> rows;
  {
    std::lock_guard lock(mutex_);
    rows.swap(unwritten_);
  }
  const Status status = write_rows(rows);
  std::lock_guard lock(mutex_);
  failure_ = status.ok() ? std::string() : status.message();
  if (status.ok()) return true;
  for (const auto& [key, counts] : rows) unwritten_[key] += counts;
  return false;
}

void UsageLedger::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || !unwritten_.empty(); });
    if (unwritten_.empty()) return;
    lock.unlock();
    const bool written = write();
    lock.lock();
    if (written) continue;
    if (stop_) return;
    wake_.wait_for(lock, kRetryPause, [&] { return stop_; });
  }
}

std::string usage_day() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[16];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d", &parts));
}

}  // namespace kvikk

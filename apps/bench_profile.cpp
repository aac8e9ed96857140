#include "bench_profile.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "text/numbers.h"

namespace kvikk {
namespace {

constexpr double kNanoseconds = 1e-9;

double percent(double part, double whole) { return whole > 0 ? 100.0 * part / whole : 0.0; }

std::string milliseconds_text(double seconds) { return rate_text(seconds * 1e3) + " ms"; }

}  // namespace

Profile summarize(std::string name, const PhaseLog& log, size_t steps) {
  Profile profile;
  profile.name = std::move(name);
  profile.steps = steps;
  if (log.phases().empty() || steps == 0) return profile;
  const double step = 1.0 / static_cast<double>(steps);
  std::map<std::string, PhaseShare> shares;
  PhaseShare between = {"between phases", 0, 0, 0};
  int64_t last_end = log.phases().front().begin;
  for (size_t i = 0; i < log.phases().size(); ++i) {
    const PhaseLog::Phase& phase = log.phases()[i];
    PhaseShare& share = shares[phase.label];
    const auto wall = static_cast<double>(phase.end - phase.begin);
    double busy = 0;
    bool shared = false;  // by more than the calling thread
    for (int t = 0; t < log.threads(); ++t) {
      const PhaseLog::Piece piece = log.piece(i, t);
      busy += static_cast<double>(piece.end - piece.begin);
      shared = shared || (t > 0 && piece.end > piece.begin);
    }
    ++share.count;
    share.seconds += wall * kNanoseconds * step;
    share.waiting += (wall - busy / log.threads()) * kNanoseconds * step;
    between.seconds += static_cast<double>(phase.begin - last_end) * kNanoseconds * step;
    last_end = phase.end;
    if (shared) ++profile.barriers;
  }
  profile.barriers /= steps;
  profile.seconds =
      static_cast<double>(last_end - log.phases().front().begin) * kNanoseconds * step;
  for (auto& [label, share] : shares) {
    share.label = label;
    share.count /= steps;
    profile.shares.push_back(share);
  }
  between.waiting = between.seconds * (log.threads() - 1) / log.threads();
  profile.shares.push_back(between);
  std::stable_sort(profile.shares.begin(), profile.shares.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return profile;
}

std::string profile_table(const Profile& profile) {
  std::string text = "\n" + profile.name + ": " + milliseconds_text(profile.seconds) + " a step, " +
                     std::to_string(profile.barriers) + " barriers\n" +
                     "phase              count      time   share    waiting\n";
  double waiting = 0;
  for (const PhaseShare& share : profile.shares) {
    std::string label = share.label;
    label.resize(std::max<size_t>(label.size(), 16), ' ');
    waiting += share.waiting;
    text += label + align_right(std::to_string(share.count), 8) +
            align_right(milliseconds_text(share.seconds), 10) +
            align_right(rate_text(percent(share.seconds, profile.seconds)), 7) + "%" +
            align_right(rate_text(percent(share.waiting, profile.seconds)), 9) + "%\n";
  }
  return text + "threads wait " + rate_text(percent(waiting, profile.seconds)) + "% of the time\n";
}

nlohmann::ordered_json profile_json(const Profile& profile) {
  nlohmann::ordered_json shares = nlohmann::ordered_json::array();
  for (const PhaseShare& share : profile.shares) {
    shares.push_back({{"phase", share.label},
                      {"count", share.count},
                      {"seconds", share.seconds},
                      {"waiting_seconds", share.waiting}});
  }
  return {{"kind", profile.name},
          {"steps", profile.steps},
          {"seconds_per_step", profile.seconds},
          {"barriers_per_step", profile.barriers},
          {"phases", shares}};
}

std::string trace_json(const std::vector<std::pair<std::string, const PhaseLog*>>& logs) {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  int process = 0;
  for (const auto& [name, log] : logs) {
    ++process;  // each stretch is shown as a process of its own
    events.push_back(
        {{"ph", "M"}, {"name", "process_name"}, {"pid", process}, {"args", {{"name", name}}}});
    for (size_t i = 0; i < log->phases().size(); ++i) {
      for (int t = 0; t < log->threads(); ++t) {
        const PhaseLog::Piece piece = log->piece(i, t);
        if (piece.end == piece.begin) continue;
        events.push_back({{"ph", "X"},
                          {"name", log->phases()[i].label},
                          {"pid", process},
                          {"tid", t},
                          {"ts", static_cast<double>(piece.begin) / 1e3},
                          {"dur", static_cast<double>(piece.end - piece.begin) / 1e3}});
      }
    }
  }
  return nlohmann::ordered_json{{"displayTimeUnit", "ns"}, {"traceEvents", events}}.dump() + "\n";
}

}  // namespace kvikk

#pragma once
// The draw itself: one token, with probability proportional to exp(logit / temperature).

#include "sampling/candidates.h"
#include "sampling/random.h"

namespace kvikk {

// Exponential race (the Gumbel-max trick): token i has the arrival time E_i / w_i, where E_i =
// -log(u_i) comes from the keyed uniform u_i of that token, and w_i = exp(logit_i / temperature);
// the first to arrive is drawn, with probability w_i / sum(w). Because the noise belongs to the
// token and not to a place in a list, the draw depends neither on the order of the candidates nor
// on which others are among them: two distributions that differ little draw the same token nearly
// always, which lets a draft follow its target.
//
// temperature > 0. At equal times the lowest token wins.
TokenId draw(const Candidates& candidates, double temperature, RandomKey key);

}  // namespace kvikk

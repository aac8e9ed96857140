#!/bin/bash
# Fetches the models that tests need: fetch_models.sh PROGRAM NAME...
# A model under terms that must be accepted is fetched only when KVIKK_ACCEPT_LICENCE names it;
# the tests that need it skip otherwise.
set -u
program=$1
shift
for name in "$@"; do
  accept=()
  if [ "$name" = gemma-3-270m ]; then
    case " ${KVIKK_ACCEPT_LICENCE-} " in
      *" $name "*) accept=(--accept-licence) ;;
      *) echo "$name: left out; KVIKK_ACCEPT_LICENCE='$name' accepts its terms"; continue ;;
    esac
  fi
  "$program" pull "${accept[@]}" "$name" </dev/null || exit 1
done

#!/usr/bin/env bash
# Reproduces a fixed bug: checks out the commit before the fix, adds the tests of the fix,
# and runs the test that found it, which fails.
#   scripts/bug.sh          lists the bugs
#   scripts/bug.sh NAME     reproduces one
#   scripts/bug.sh all      reproduces each, and fails if a test passes
# e2e/BUGS.md explains the bugs.
set -euo pipefail
cd "$(dirname "$0")/.."

# name | the fix | paths of the fix that the test needs | files in them that do not compile before the fix | package | test
bugs='
late-answer        | 47d8128 | sqlmock_test | | ./sqlmock_test | TestAnAnswerThatIsReadTooLateElectsNobody
hung-up-too-soon   | a73b41f | electortest | | ./electortest | TestALeaderThatHearsNothingKeepsItsLockUntilItsWorkHasReturned
begin-at-the-end   | a6ca89a | sqlmock_test | | ./sqlmock_test | TestATransactionThatItsTermInterruptsIsNotTheLeaders
before-the-end     | d1683a4 | electortest | | ./electortest | TestTheTermHasEndedWhenInTxFindsItsSessionLost
unanswered-commit  | d1683a4 | electortest | | ./electortest | TestAnUnansweredCommitIsNotWaitedForPastTheDrain
panicked-commit    | 826bceb | sqlmock_test | | ./sqlmock_test | TestAServerThatPanicsDuringCommitLeavesTheOutcomeUnknown
unasked            | 2fb1eb5 | electortest | | ./electortest | TestTheLockOfACampaignIsKeptUntilItsCallerResigns
forgotten          | c636000 | sqlmock_test | | ./sqlmock_test | TestAStatementThatIsForgottenOnceIsAskedAgain
full-lock-table    | cdbf38f | e2e internal/history internal/pgcluster go.mod go.sum | e2e/watch_test.go | ./e2e | TestOfTooManyElectionsThoseThatFitAreLed
small-pool         | cdbf38f | e2e internal/history internal/pgcluster go.mod go.sum | e2e/watch_test.go | ./e2e | TestManyElectorsCheckTheServerThroughASmallPool
outlived           | 0e178dd | e2e | | ./e2e | TestAFencedTransactionThatOutlivesItsTermSaysSo
frozen-in-a-result | 22ba269 | e2e internal fence go.mod go.sum | | ./e2e | TestAFrozenLeaderWithATransactionOpenIsReplaced
'

rows() { grep '|' <<<"$bugs" | sed 's/ *| */|/g'; }

reproduce() { # NAME: succeeds if its test fails
  local name fix paths without package test
  IFS='|' read -r name fix paths without package test < <(rows | grep "^$1|") || {
    echo "bug: no bug is named '$1'; scripts/bug.sh lists the names" >&2
    return 2
  }
  local tree
  tree=$(mktemp -d)
  git worktree add -q --detach "$tree" "$fix^"
  # shellcheck disable=SC2086 # word splitting is intended
  (
    cd "$tree"
    git checkout -q "$fix" -- $paths
    [ -z "$without" ] || rm -f $without
    go vet "$package" || exit 2 # a compile error is not the bug
    echo "== $name: $test on the commit before $fix"
    if go test -count=1 -run "^$test\$" "$package"; then exit 1; fi
  ) && status=0 || status=$?
  git worktree remove --force "$tree"
  case $status in
    0) echo "== $name: reproduced" ;;
    *) echo "== $name: NOT reproduced" ;;
  esac
  return "$status"
}

case ${1:-} in
  '') rows | cut -d'|' -f1 ;;
  all)
    failed=0
    for name in $(rows | cut -d'|' -f1); do reproduce "$name" || failed=1; done
    exit $failed ;;
  *) scripts/setup.sh postgresql pgbouncer; reproduce "$1" ;;
esac

# Ends the programs of a host that is gone. The host holds the other end of standard input; see janitor.rs.
trap '' HUP INT QUIT TERM
live=" $* "
socket=
number=
while IFS= read -r line; do
    what=${line#?}
    case $line in
    +*) live="$live$what " ;;
    -*) case $live in *" $what "*) live="${live%%" $what "*} ${live#*" $what "}" ;; esac ;;
    =*) socket=$what ;;
    @*) number=$what ;;
    esac
done
for group in $live; do
    case $group in
    *[!0-9]* | 0* | 1) ;;
    *) kill -s KILL -- "-$group" ;;
    esac
done
# What left its group, or was begun and not told any more, has the address of this host in its environment, and a number
# of this host as a limit that it inherited (mark.rs). What this was not told is looked for as what nobody has.
address="TENURE_PROGRESS=unix:${socket:-(none)}"
limit="^Max realtime timeout  *${number:-none}[0-9]\{9\} "
killed=' '
rounds=32
while [ "$rounds" -gt 0 ]; do
    rounds=$((rounds - 1))
    found=
    for file in $(grep -l -F -e "$address" /proc/[0-9]*/environ; grep -l -e "$limit" /proc/[0-9]*/limits); do
        process=${file#/proc/}
        process=${process%/*}
        # One that was killed may have its limits until it is counted: it is no new one.
        case $killed in *" $process "*) continue ;; esac
        # Again, so that its number is not another's by now.
        grep -q -F -e "$address" "/proc/$process/environ" || grep -q -e "$limit" "/proc/$process/limits" || continue
        kill -s KILL "$process" && found=yes killed="$killed$process "
    done
    [ -n "$found" ] || break
done
[ -n "$socket" ] || exit 0
rm -f -- "$socket"
rmdir -- "${socket%/*}"

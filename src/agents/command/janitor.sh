# Ends the programs of a host that is gone. The host holds the other end of standard input; see janitor.rs.
trap '' HUP INT QUIT TERM
live=" $* "
socket=
while IFS= read -r line; do
    what=${line#?}
    case $line in
    +*) live="$live$what " ;;
    -*) case $live in *" $what "*) live="${live%%" $what "*} ${live#*" $what "}" ;; esac ;;
    =*) socket=$what ;;
    esac
done
for group in $live; do
    case $group in
    *[!0-9]* | 0* | 1) ;;
    *) kill -s KILL -- "-$group" ;;
    esac
done
[ -n "$socket" ] || exit 0
# What left its group, or was begun and not told any more, has the address of this host in its environment.
mark="TENURE_PROGRESS=unix:$socket"
rounds=32
while [ "$rounds" -gt 0 ]; do
    rounds=$((rounds - 1))
    found=
    for file in $(grep -l -F -e "$mark" /proc/[0-9]*/environ); do
        process=${file#/proc/}
        # Again, so that its number is not another's by now.
        grep -q -F -e "$mark" "$file" && kill -s KILL "${process%/environ}" && found=yes
    done
    [ -n "$found" ] || break
done
rm -f -- "$socket"
rmdir -- "${socket%/*}"

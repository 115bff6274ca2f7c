# clamp VALUE MOST: the smaller of the two.
clamp() {
    if [ "$1" -gt "$2" ]; then echo "$2"; else echo "$1"; fi
}

double() {
    [[ $1 =~ ^-?[0-9]+$ ]] || return 1
    echo $(($1 * 2))
}

. ./limit.sh
[ "$(clamp 3 5)" = 3 ] || { echo "limit_test.sh:2: clamp 3 5 is $(clamp 3 5), not 3"; exit 1; }
[ "$(clamp 7 5)" = 5 ] || { echo "limit_test.sh:3: clamp 7 5 is $(clamp 7 5), not 5"; exit 1; }

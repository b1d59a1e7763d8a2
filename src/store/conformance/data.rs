use super::list;
list! {}
